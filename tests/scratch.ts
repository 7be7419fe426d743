/** Folders of tests, and what is in them. */

/** Calls `body` with a new folder and removes the folder. */
export async function withScratch<T>(body: (folder: string) => Promise<T>): Promise<T> {
  const folder = await Deno.makeTempDir({ prefix: "parscale-test-" });
  try {
    return await body(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Names in a folder, sorted. */
export const namesIn = (folder: string): string[] =>
  [...Deno.readDirSync(folder)].map(({ name }) => name).sort();
