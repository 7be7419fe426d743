/**
 * What a standalone program does before anything else: it waits until its files are at rest.
 *
 * A program made by `deno compile --self-extracting` writes its files to disk at its first start, with
 * no lock. A second start that began before the first was done truncates every file and writes it
 * once more, while the first may already have the engine mapped, which would kill it. So a start waits
 * until the mark of completion is older than such a second writing takes; every later one finds the
 * mark old and goes on at once.
 */

/** Another start may share the disk with this one, and takes twice as long then. */
const PATIENCE = 2;

/** Milliseconds: added for a clock of coarse ticks, and the longest that writing is believed to take. */
const MARGIN = 100;
const LONGEST = 5000;

/** Waits for another process that may still be writing to `folder`, the root of the program's files. */
export async function waitForFiles(folder: URL): Promise<void> {
  const { birthtime } = await Deno.stat(folder);
  while (true) {
    // The last writer renews the mark.
    const marked = await timeOf(new URL(".done", folder));
    if (marked === undefined) return; // no files were written: the program runs from memory
    const took = Math.min(marked - (birthtime?.getTime() ?? 0), LONGEST);
    const age = Date.now() - marked;
    const rest = PATIENCE * took + MARGIN - age;
    if (rest <= 0 || age < 0) return; // a mark from the future: the clock was set back
    await new Promise((resolve) => setTimeout(resolve, rest));
  }
}

async function timeOf(file: URL): Promise<number | undefined> {
  try {
    return (await Deno.stat(file)).mtime?.getTime();
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}
