/**
 * The one list of what travels in a release: the project's own files and those of its packages. Whatever is
 * not named stays behind: tests, fixtures, type declarations, source maps, other platforms' engines. Most of
 * `npm:` packages by size is never loaded, so of the large ones single files are named; a file that is missed
 * shows in the tests, which run the command line from what was shipped.
 */

/** Files and folders of the project. */
export const SOURCES = ["LICENSE", "mod.ts", "cli", "core", "kernels"] as const;

/** Parts of those folders that only make releases. */
export const LEFT_BEHIND = ["cli/release"] as const;

/**
 * Files that no import reaches: workers, data, what Python starts from. A release without one of
 * them starts and then fails in the middle of its work, so every release is searched for them.
 */
export const UNSEEN = [
  "cli/output/signal_worker.ts",
  "core/checkpoint/hash_worker.ts",
  "core/checkpoint/quantize_worker.ts",
  "core/data/tokenize_worker.ts",
  "core/serve/long_body_worker.ts",
  "core/grammar/worker.ts",
  "core/eval/sandbox/child.ts",
  "core/eval/sandbox/interpreter.ts",
  "core/eval/grading/ifeval/data/language_profiles.json.gz",
  "core/eval/grading/ifeval/data/punkt_english.json.gz",
  "node_modules/markdown-it/dist/browser/markdown-it.umd.min.js",
  "node_modules/onnxruntime-node/package.json",
  "node_modules/pyodide/package.json",
  "node_modules/pyodide/pyodide-lock.json",
  "node_modules/pyodide/pyodide.asm.js",
  "node_modules/pyodide/pyodide.asm.wasm",
  "node_modules/pyodide/python_stdlib.zip",
] as const;

/** Dependencies that serve only a package's install script, its own command line, types or sockets. */
const UNUSED_DEPENDENCIES: ReadonlySet<string> = new Set([
  "adm-zip",
  "base-64",
  "commander",
  "global-agent",
  "iconv-lite",
  "json-stringify-pretty-compact",
  "onnxruntime-common",
  "rw",
  "vega-typings",
  "ws",
  "yargs",
]);

/**
 * Imported only for their types and by tests: the tfjs device runs on a package that a user installs
 * beside the sources; documents are spelled and WebAssembly is assembled before they are released.
 */
const UNUSED_IMPORTS = /^(@tensorflow\/|dictionary-en$|nspell$|wabt$)/;

/** Returns whether a release needs a package that `deno.json` imports, by its name. */
export function isImported(name: string): boolean {
  return !UNUSED_IMPORTS.test(name);
}

/** Returns whether a dependency is ever loaded. */
export function isUsed(name: string): boolean {
  return !name.startsWith("@types/") && !UNUSED_DEPENDENCIES.has(name);
}

/** Of these packages only these files are loaded; `*` is any part of a name, `**` also of a path. */
const LOADED = [
  "@huggingface/tokenizers/dist/tokenizers.mjs",
  "deno-std/cli/parse_args.js",
  "deno-std/yaml/**.js",
  "markdown-it/dist/browser/markdown-it.umd.min.js",
  "markdown-it/dist/markdown-it.mjs",
  "onnxruntime-node/dist/index.js", // only looked for, to find the folder of the engine
  "pyodide/pyodide-lock.json",
  "pyodide/pyodide.asm.js",
  "pyodide/pyodide.asm.wasm",
  "pyodide/pyodide.mjs",
  "pyodide/python_stdlib.zip",
  "vega-*/build/**.js",
  "vega-lite/build/index.js",
  "vega/build/vega.module.js",
].map((pattern) => {
  const name = pattern.match(/^(@[^/]+\/)?[^/]+/)![0];
  return { name: glob(name), files: glob(pattern.slice(name.length + 1)) };
});

function glob(pattern: string): RegExp {
  const parts = pattern.split(/(\*\*?)/).map((part) =>
    part === "**" ? ".*" : part === "*" ? "[^/]*" : RegExp.escape(part)
  );
  return new RegExp(`^${parts.join("")}$`);
}

const CODE = /\.(js|mjs|cjs|json|wasm)$/;
const NOISE =
  /(^|\/)(tests?|examples?|umd|bin)\/|(^|\/)(rollup\.config\.js|tsconfig\.json)$|(?<!markdown-it\.umd)\.min\.js$/;

/** Returns whether a file of a package travels; `path` is below the package's folder. */
export function isShipped(name: string, path: string, engine: string): boolean {
  if (path === "package.json" || /^(licen[cs]e|notice)[^/]*$/i.test(path)) return true;
  if (path === `bin/napi-v6/${engine}`) return true;
  const loaded = LOADED.filter((each) => each.name.test(name));
  const known = loaded.length > 0 ? loaded.some(({ files }) => files.test(path)) : CODE.test(path);
  return known && !NOISE.test(path);
}
