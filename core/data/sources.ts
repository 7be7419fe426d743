/**
 * Finds the files that the user's words for training data mean.
 *
 * A spec is a file, a folder, a glob (`*`, `?`, `**`) or `-` for standard input, with an optional
 * `=WEIGHT` at its end. A path that exists is always taken as it is, so names with `*` or `=2` in them
 * work.
 */
import { posix } from "node:path";
import { withSlashes } from "../base/platform/mod.ts";
import { readError, statIfExists } from "../base/files.ts";
import { DataError, UsageError } from "../base/errors.ts";
import { STDIN } from "./read.ts";

/** Files that are trained together. */
export interface Source {
  /** Spec as the user wrote it, without the weight; several specs are joined by a space. */
  readonly spec: string;
  /** Paths, `-` or data on the hub, in the order they are read. */
  readonly files: readonly string[];
  /** Share of the rows among all sources, in any unit. */
  readonly weight?: number;
}

/** Files that are taken out of a folder; a file named by itself or by a glob may end in anything. */
const SUPPORTED = /\.(jsonl|ndjson|json|txt|md)(\.(gz|zst|zstd))?$|\.parquet$/i;

const WEIGHTED = /^(.+)=(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)$/i;

/** Finds the files of specs. Specs without weights together are one source. */
export async function resolveSources(specs: readonly string[]): Promise<Source[]> {
  if (specs.length === 0) {
    throw new UsageError("no training data given");
  }
  const parsed = await Promise.all(specs.map(parseSpec));
  requireWeightsOfAllOrNone(parsed);
  const sources: Source[] = [];
  for (const { spec, weight } of parsed) {
    const files = await findFiles(spec);
    if (files.length === 0) throw await nothingFound(spec);
    sources.push({ spec, files, weight });
  }
  requireOnce(sources.flatMap(({ files }) => files));
  if (sources[0]!.weight !== undefined) return sources;
  const spec = sources.map(({ spec }) => spec).join(" ");
  return [{ spec, files: sources.flatMap(({ files }) => files) }];
}

/** Says what a folder has in place of known files, or what a spec may be. */
async function nothingFound(spec: string): Promise<DataError> {
  const folder = withSlashes(spec).replace(/\/+$/, "");
  const counts = new Map<string, number>();
  if ((await statIfExists(folder || "/"))?.isDirectory) {
    for await (const path of walk(folder || "/")) {
      const ending = posix.extname(path);
      if (ending !== "") counts.set(ending, (counts.get(ending) ?? 0) + 1);
    }
  }
  const [first, ...more] = [...counts].sort(([, a], [, b]) => b - a).slice(0, 5);
  const known = "a folder is searched for .jsonl, .json, .parquet, .txt and .md, compressed or not";
  if (first === undefined) {
    const hint = spec.includes("=") ? ["a weight is a positive number after ="] : [];
    return new DataError(`no data files match "${spec}"`, { hints: [known, ...hint] });
  }
  const has = [first, ...more].map(([ending, count]) => `${count} ${ending}`).join(", ");
  return new DataError(`"${spec}" has no data files: it has ${has}`, {
    hints: [known, `to read other files as text: --data "${folder}/**/*${first[0]}"`],
  });
}

type WeightedSpec = Pick<Source, "spec" | "weight">;

async function parseSpec(text: string): Promise<WeightedSpec> {
  const [, spec, number] = WEIGHTED.exec(text) ?? [];
  const weight = Number(number);
  if (spec === undefined || !(weight > 0 && weight < Infinity)) return { spec: text };
  return await statIfExists(text) ? { spec: text } : { spec, weight };
}

function requireWeightsOfAllOrNone(specs: readonly WeightedSpec[]): void {
  const without = specs.find(({ weight }) => weight === undefined);
  const weighted = specs.find(({ weight }) => weight !== undefined);
  if (!without || !weighted) return;
  throw new UsageError(`"${without.spec}" has no weight, and "${weighted.spec}" has one`, {
    hints: [`write \`${without.spec}=WEIGHT\``],
  });
}

/** Twice the same file is nearly always two globs that overlap, and standard input has one content. */
function requireOnce(files: readonly string[]): void {
  const seen = new Set<string>();
  for (const file of files) {
    const path = file === STDIN ? file : posix.normalize(file);
    if (seen.has(path)) {
      throw new UsageError(`"${file}" is named twice in the data`, {
        hints: ["to train on it more often, use weights"],
      });
    }
    seen.add(path);
  }
}

/** Returns whether a spec names data on the hub. */
export function isHubData(spec: string): boolean {
  return spec.startsWith("hf://");
}

/** Paths have slashes on every system, so that the order of files is the same everywhere. */
async function findFiles(text: string): Promise<string[]> {
  const spec = withSlashes(text);
  if (spec === STDIN) return [spec];
  const info = await statIfExists(spec);
  if (info?.isDirectory) return await filesIn(spec, (path) => SUPPORTED.test(path));
  // Whether a file can be read to its end is seen when it is opened.
  if (info || isHubData(spec)) return [spec];
  if (!/[*?]/.test(spec)) return [];
  // The part before the first wildcard is a folder to start from.
  const fixed = /^[^*?]*\//.exec(spec)?.[0] ?? "";
  const pattern = globToRegExp(spec.slice(fixed.length));
  const folder = fixed === "" ? "." : fixed;
  if (!(await statIfExists(folder))?.isDirectory) return [];
  return await filesIn(folder, (path) => pattern.test(posix.relative(folder, path)));
}

async function filesIn(folder: string, isWanted: (path: string) => boolean): Promise<string[]> {
  return (await Array.fromAsync(walk(folder))).filter(isWanted).sort();
}

/** All files below a folder except hidden ones; links to folders are not followed. */
async function* walk(folder: string): AsyncGenerator<string> {
  try {
    for await (const { name, isDirectory, isSymlink } of Deno.readDir(folder)) {
      if (name.startsWith(".")) continue;
      const path = posix.join(folder, name);
      if (isDirectory) yield* walk(path);
      // The hub's cache is made of links to files.
      else if (!isSymlink || (await statIfExists(path))?.isFile) yield path;
    }
  } catch (error) {
    throw readError(folder, error);
  }
}

/** `*` and `?` stay inside a name; `**` as a whole name stands for any number of folders. */
export function globToRegExp(glob: string): RegExp {
  const parts = glob.split("/").map((name, i, { length }) => {
    if (name === "**") return i === length - 1 ? ".+" : "(?:[^/]+/)*";
    const escaped = name.replace(/[.+^${}()|[\]\\]/g, "\\$&")
      .replaceAll("*", "[^/]*").replaceAll("?", "[^/]");
    return i === length - 1 ? escaped : `${escaped}/`;
  });
  return new RegExp(`^${parts.join("")}$`, "u");
}
