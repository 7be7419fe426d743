/**
 * Frame of the release tools: flags, help and errors are those of every other command.
 *
 * They are not subcommands of `parscale`, since a shipped program cannot build itself; `deno task`
 * runs them with a registry of one.
 */
import { dirname } from "node:path";
import { DataError } from "../../core/base/errors.ts";
import { rename } from "../../core/storage/rename.ts";
import {
  type CommandBody,
  type CommandDefinition,
  type CommandValues,
  entry,
  type ValuesOf,
} from "../framework/command.ts";
import type { FlagTable } from "../framework/table.ts";
import { VERSION } from "../../core/base/version.ts";
import { main } from "../main.ts";
import type { Invocation } from "../output/document.ts";
import { Io, processSystem } from "../output/io.ts";
import { bytesText, grouped } from "../output/units.ts";

/** Work of a tool with the values of its flags. */
export type ToolRun<D> = (
  values: ValuesOf<D>,
  io: Io,
  invocation: Invocation,
) => Promise<number | void>;

/** Runs a tool with the process's arguments. */
export async function runTool<F extends FlagTable>(
  name: string,
  summary: string,
  command: CommandDefinition<F>,
  run: ToolRun<CommandDefinition<F>>,
): Promise<void> {
  const load = () => Promise.resolve({ command });
  const body: CommandBody<CommandValues<F>> = {
    run(values, ctx) {
      ctx.begin();
      return run(values, ctx.io, ctx.invocation);
    },
  };
  const registry = [entry(name, summary, load, () => Promise.resolve(body))];
  Deno.exitCode = await main([name, ...Deno.args], new Io(processSystem()), registry);
}

/** Runs another program and returns what it printed on both streams. */
export async function runProgram(
  program: string,
  args: readonly string[],
  options: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<{ readonly ok: boolean; readonly text: string }> {
  const command = new Deno.Command(program, { args: [...args], ...options, stdin: "null" });
  const { success, stdout, stderr } = await command.output();
  const decoder = new TextDecoder();
  return { ok: success, text: decoder.decode(stdout) + decoder.decode(stderr) };
}

/**
 * Starts what was built, and reads its version.
 * @throws {DataError} unless it is the version of these sources
 */
export async function requireVersion(
  name: "bundle" | "program",
  program: string,
  env: Readonly<Record<string, string>> = {},
): Promise<void> {
  const { text } = await runProgram(program, ["--version"], { env });
  const found = text.trim().slice(0, 200);
  if (found === `parscale ${VERSION}`) return;
  throw new DataError(`the ${name} is version "${found}", expected ${VERSION}`);
}

/** The flag that names what a tool makes, in place of `defaultText`. */
export function outFlag(defaultText: string, summary: string) {
  return {
    type: "output",
    letter: "o",
    configurable: false,
    defaultText,
    summary,
    details: "An earlier one is replaced when the new one is whole; a failed build leaves it.",
  } as const;
}

/** Returns the size of a file. @throws {DataError} for one of more bytes than `limit` */
export async function requireSize(what: string, path: string, limit: number): Promise<number> {
  const { size } = await Deno.stat(path);
  if (size <= limit) return size;
  throw new DataError(
    `the ${what} has ${grouped(size)} bytes, expected at most ${bytesText(limit)}`,
  );
}

/** Lets `build` make a file in a new folder beside `out`, then puts it in its place. */
export async function replaceWith(
  out: string,
  build: (folder: string) => Promise<string>,
): Promise<void> {
  const parent = dirname(out);
  await Deno.mkdir(parent, { recursive: true });
  const folder = await Deno.makeTempDir({ dir: await Deno.realPath(parent), prefix: ".release-" });
  try {
    rename(await build(folder), out);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
