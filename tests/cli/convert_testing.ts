/** Shared by the tests of `parscale convert`. */
import { assertEquals } from "@std/assert";
import { succeed } from "./models.ts";

/** Names in a folder, hidden ones too. */
export const names = (folder: string) =>
  [...Deno.readDirSync(folder)].map(({ name }) => name).sort();

/** Runs `convert` successfully and returns `results` of its JSON document. */
// deno-lint-ignore no-explicit-any -- tests look at any field
export async function converted(cwd: string, ...args: string[]): Promise<any> {
  const result = await succeed(["convert", ...args, "--json"], { cwd });
  const document = JSON.parse(result);
  assertEquals([document.schema, document.command], ["parscale.convert/2", "convert"]);
  return document.results;
}
