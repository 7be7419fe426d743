/**
 * Keeps what a command reads from being written: no output may be an input, lie in a folder of one, or
 * hold one. The flag table says what is read and what is written; files are told apart by inode, so that
 * links do not matter. Devices, pipes and `-` do not count as files.
 */
import { basename, dirname, join, resolve } from "node:path";
import { UsageError } from "../../core/base/errors.ts";
import { resolveRuns } from "../../core/checkpoint/run.ts";
import { isHubData, resolveSources } from "../../core/data/sources.ts";
import { hubAccess } from "../../core/hub/access.ts";
import { isOnHub } from "../../core/hub/model.ts";
import { rowFlags } from "../framework/common.ts";
import { type Command, flagsOf } from "../framework/command.ts";
import { type AllValues, type FlagText, formatFlag, textsOf } from "../framework/table.ts";
import { recordOf } from "../output/finished.ts";
import { journalOf } from "../output/journal.ts";
import { isDevice } from "../output/sink.ts";

/** Levels of folders that an output may replace, such as a checkpoint in a run. */
const OUTPUT_DEPTH = 2;

/**
 * Refuses outputs over inputs, and two outputs in one place.
 * @throws {UsageError}
 */
export async function keepInputs(command: Command, values: AllValues): Promise<void> {
  const outputs = outputsOf(command, values);
  if (outputs.length === 0) return;
  const places = outputs.map(({ text }) => placeOf(text));
  const twice = outputs.find((_, i) => places.lastIndexOf(places[i]!) > i);
  if (twice) throw new UsageError(`two outputs are to be written to "${twice.text}"`);
  const inputs = await inputsOf(command, values);
  for (const { flag, text: path } of outputs) {
    const replaced = new Set([...below(path, OUTPUT_DEPTH)].map(([key]) => key));
    for (const [input, isShared] of inputs) {
      const message = collision(path, input, replaced, isShared);
      if (message === undefined) continue;
      throw new UsageError(message, { hints: [`choose another ${formatFlag(flag)}`] });
    }
  }
}

/** Says how an output is in the way of an input, if it is. */
function collision(
  output: string,
  input: string,
  replaced: ReadonlySet<string>,
  isShared: boolean,
): string | undefined {
  const own = keyOf(input)!;
  if (keyOf(output) === own) return `"${output}" is an input of this command`;
  if (!isShared && foldersOf(output).has(own)) return `"${output}" lies in the input "${input}"`;
  if (replaced.size === 0) return undefined;
  if (foldersOf(input).has(keyOf(output)!)) return `"${output}" holds the input "${input}"`;
  const [, same] = below(input).find(([key]) => replaced.has(key)) ?? [];
  return same && `"${output}" is, or has a link to, the input "${same}"`;
}

/** Paths that a command writes, those beside the result included. */
function outputsOf(command: Command, values: AllValues): FlagText[] {
  const table = flagsOf(command);
  const outputs = textsOf("output", table, values)
    .filter(({ text }) => text !== "-" && !isDevice(text));
  const keepsRows = table.resume === rowFlags.resume;
  const journals = outputs.filter(({ flag }) => keepsRows && flag === "out")
    .flatMap(({ flag, text }) => [journalOf, recordOf].map((of) => ({ flag, text: of(text) })));
  return [...outputs, ...journals];
}

/** Paths that a command reads, as far as they exist, and whether outputs may lie in such a folder. */
async function inputsOf(command: Command, values: AllValues): Promise<Map<string, boolean>> {
  const choices = command.arguments?.flatMap(({ choices = [] }) => choices) ?? [];
  const words = (values.arguments as readonly string[]).filter((word) => !choices.includes(word));
  const table = flagsOf(command);
  // A run that continues may be given its own config, which stays.
  const flags = textsOf("path", table, values)
    .filter(({ flag }) => flag !== "config" || !values.resume);
  const found = new Map<string, boolean>();
  for (const { flag, text } of flags) await addInput(text, table[flag]!.sharesFolder, found);
  for (const word of words) await addInput(word, false, found);
  return found;
}

/** Adds what a text names and, of a run with an adapter, the backbone. */
async function addInput(
  text: string,
  isShared = false,
  found: Map<string, boolean>,
): Promise<void> {
  for (const path of await pathsOf(text)) {
    if (found.has(path)) continue;
    found.set(path, isShared);
    const { model } = await resolveRuns(path, undefined).catch(() => ({ model: path }));
    if (model !== path) await addInput(model, false, found);
  }
}

/** Paths of a text: one, `NAME=PATH`, `PATH=WEIGHT`, a pattern, or a name on the hub for its cache. */
async function pathsOf(text: string): Promise<string[]> {
  if (isHubData(text) || await isOnHub(text)) return existing([(await hubAccess()).cache]);
  const pattern = text.replace(/-\d{5}(-of-\d{5}\.gguf)$/i, "-?????$1");
  const at = text.indexOf("=");
  const plain = existing([text, text.replace(/=[^=]*$/, ""), text.slice(at + 1)]);
  if (!/[*?]/.test(pattern)) return plain;
  const sources = await resolveSources([pattern]).catch(() => []); // the command says what is wrong
  return [...plain, ...sources.flatMap(({ files }) => existing(files))];
}

function existing(paths: readonly string[]): string[] {
  return paths.filter((path) => path !== "-" && keyOf(path) !== undefined && !isDevice(path));
}

/** Identity of what a path leads to; undefined where that is nothing. */
function keyOf(path: string): string | undefined {
  try {
    const { dev, ino } = Deno.statSync(path);
    return ino ? `${dev}:${ino}` : Deno.realPathSync(path); // not every system numbers files
  } catch {
    return undefined;
  }
}

/** Identity of a place, also of one where nothing is yet. */
function placeOf(path: string): string {
  return keyOf(path) ?? `${keyOf(dirname(resolve(path)))}/${basename(path)}`;
}

/** Identities of all folders that a path lies in, as it is written and where it leads. */
function foldersOf(path: string): Set<string> {
  const found = new Set<string>();
  const real = keyOf(path) === undefined ? path : Deno.realPathSync(path);
  for (let folder of [resolve(path), real]) {
    while (folder !== dirname(folder)) {
      folder = dirname(folder);
      const key = keyOf(folder);
      if (key === undefined) continue;
      found.add(key);
      folder = Deno.realPathSync(folder);
    }
  }
  return found;
}

/** File or folder that a path leads to and all below it, each once. */
function* below(
  path: string,
  depth = Infinity,
  seen: Set<string> = new Set(),
): Generator<readonly [key: string, path: string]> {
  const key = keyOf(path);
  if (key === undefined || seen.has(key)) return;
  seen.add(key);
  yield [key, path];
  if (depth === 0 || !Deno.statSync(path).isDirectory) return;
  for (const name of namesIn(path)) yield* below(join(path, name), depth - 1, seen);
}

/** Names in a folder; none where it may not be read, as nothing is read from it then. */
function namesIn(folder: string): string[] {
  try {
    return Array.from(Deno.readDirSync(folder), ({ name }) => name);
  } catch {
    return [];
  }
}
