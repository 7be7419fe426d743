/** Rules of the codebase that a program can check: which module may import which. */
import { assertEquals } from "@std/assert";
import { ROOT } from "../fixtures.ts";

/** Allowed directions. A module may always import itself. */
const ALLOWED: Readonly<Record<string, string>> = {
  "core/base": "deno.json",
  "core/quant": "core/base kernels",
  "core/storage": "core/base",
  "core/graph": "core/base",
  "core/ops": "core/graph core/base",
  "core/runtime": "core/ops core/graph core/quant core/storage core/base kernels",
  "core/model": "core/ops core/graph core/base",
  "core/checkpoint": "core/model core/storage core/quant core/base",
  "core/convert": "core/checkpoint core/model core/storage core/quant core/base",
  "core/hub": "core/storage core/base",
  "core/tokenizer": "core/checkpoint core/base",
  "core/data": "core/hub core/tokenizer core/checkpoint core/storage core/base",
  "core/generate": "core/model core/runtime core/graph core/base",
  "core/grammar": "core/generate core/tokenizer core/base",
  "core/analysis": "core/generate core/model core/runtime core/ops core/graph core/base",
  "core/bringup": "core/analysis core/train core/generate core/model core/runtime core/ops " +
    "core/graph core/base",
  "core/eval": "core/session core/generate core/data core/hub core/tokenizer core/checkpoint " +
    "core/storage core/base",
  "core/collective": "core/runtime core/graph core/base",
  "core/train": "core/data core/collective core/convert core/model core/checkpoint core/runtime " +
    "core/ops core/graph core/storage core/quant core/base",
  "core/serve": "core/grammar core/session core/generate core/analysis core/model " +
    "core/tokenizer core/checkpoint core/base",
  "core/session": "core/grammar core/generate core/hub core/tokenizer core/checkpoint " +
    "core/runtime core/model core/quant core/base",
  "cli": "core/base core/quant core/storage core/analysis core/bringup core/checkpoint " +
    "core/convert core/data core/collective core/eval core/generate core/hub core/model " +
    "core/runtime core/serve core/session core/tokenizer core/train",
};

interface Source {
  readonly path: string;
  readonly text: string;
}

function* sources(folder: string): Generator<Source> {
  for (const entry of Deno.readDirSync(`${ROOT}${folder}`)) {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory) yield* sources(path);
    else if (path.endsWith(".ts")) yield { path, text: Deno.readTextFileSync(`${ROOT}${path}`) };
  }
}

/** The only native code outside core/runtime. */
const NATIVE = ["mpi", "mpi_abi", "nccl_library"].map((name) => `core/collective/${name}.ts`)
  .concat("core/base/platform/end_process.ts");

const ALL = [...sources("core"), ...sources("cli")];

/** The module a file belongs to: `core/graph`, `cli`. */
function moduleOf(path: string): string {
  const [top, second, ...rest] = path.split("/");
  return top === "core" && rest.length > 0 ? `core/${second}` : top!;
}

function importsOf({ path, text }: Source): string[] {
  const specifiers = [...text.matchAll(/(?:from|import)\s*\(?\s*"([^"]+)"/g)].map((m) => m[1]!);
  return specifiers.filter((specifier) => specifier.startsWith("."))
    .map((specifier) => new URL(specifier, `file:///${path}`).pathname.slice(1));
}

/** Requires that no file is such. */
function assertNone(isWrong: (source: Source) => boolean): void {
  assertEquals(ALL.filter(isWrong).map(({ path }) => path), []);
}

Deno.test("imports follow the allowed directions", () => {
  const wrong = ALL.flatMap((source) => {
    const from = moduleOf(source.path);
    const allowed = [from, ...(ALLOWED[from]?.split(" ") ?? [])];
    return importsOf(source)
      .filter((to) => !allowed.includes(moduleOf(to)))
      .map((to) => `${source.path} → ${to}`);
  });
  assertEquals(wrong, []);
});

Deno.test("cli computes nothing: of core/runtime it opens devices and names their libraries", () => {
  const opens = [
    "mod.ts",
    "traits.ts",
    "cuda/open.ts",
    "cuda/verified.ts",
    "onnxruntime/capi/library.ts",
    "onnxruntime/export.ts",
    "tfjs/open.ts",
  ].map((path) => `core/runtime/${path}`);
  const found = ALL.filter(({ path }) => path.startsWith("cli/")).flatMap(importsOf)
    .filter((path) => moduleOf(path) === "core/runtime" && !opens.includes(path));
  assertEquals(found, []);
});

Deno.test("the training loop, the trainer and the optimizer know no ranks", () => {
  const files = ["loop", "trainer", "optimizer"].map((name) => `core/train/${name}.ts`);
  const ranks = /\b(world|(local)?ranks?|shard\w*)\b/i;
  assertNone(({ path, text }) => files.includes(path) && ranks.test(text));
});

Deno.test("only core/runtime, core/collective for MPI, and the end of a process touch native code", () => {
  const native = /Deno\.(dlopen|Unsafe\w+)|"onnxruntime-node"|"@tensorflow\//;
  assertNone(({ path, text }) =>
    moduleOf(path) !== "core/runtime" && !NATIVE.includes(path) && native.test(text)
  );
});

Deno.test("only core/base/platform depends on the operating system", () => {
  const asks =
    /Deno\.build\.os|\/proc\/self|systemMemoryInfo|hardwareConcurrency|Deno\.(chmod|kill)\(|"HOME"/;
  // The first two print its name, the next choose files by it, and the last end their own process.
  const allowed = [
    "cli/commands/bench/cell.ts",
    "cli/commands/doctor/checks.ts",
    "cli/release/bundle.ts",
    "core/runtime/onnxruntime/capi/library.ts",
    "cli/framework/own_process.ts",
    "cli/output/signals.ts",
  ];
  assertNone(({ path, text }) =>
    asks.test(text) && !path.startsWith("core/base/platform/") && !allowed.includes(path)
  );
});

Deno.test("TensorFlow is imported for its types alone", () => {
  const loading = /^import (?!type\b)[^;]*"@tensorflow\/|\bimport\("@tensorflow\//m;
  assertNone(({ text }) => loading.test(text));
});

Deno.test("core neither prints nor exits, and cli writes through Io alone", () => {
  const printing = /\bconsole\.|Deno\.exit\(|Deno\.(stdout|stderr)\b/;
  // The sandbox's child is a process of its own, whose streams are its protocol.
  const allowed = [
    "cli/output/io.ts",
    "cli/output/signals.ts",
    "cli/output/signal_worker.ts",
    "core/eval/sandbox/child.ts",
  ];
  const code = (text: string) => text.replace(/^ *\*.*$/gm, "");
  assertNone(({ path, text }) => printing.test(code(text)) && !allowed.includes(path));
});

Deno.test("no file is longer than 400 lines", () =>
  assertNone(({ text }) => text.split("\n").length > 400));

Deno.test("no module imports itself through others", () => {
  const edges = new Map(ALL.map((source) => [source.path, importsOf(source)]));
  const done = new Set<string>(), circles: string[] = [];
  const visit = (path: string, trail: readonly string[]) => {
    const at = trail.indexOf(path);
    if (at >= 0) return void circles.push([...trail.slice(at), path].join(" → "));
    if (done.has(path)) return;
    for (const next of edges.get(path) ?? []) visit(next, [...trail, path]);
    done.add(path);
  };
  for (const path of edges.keys()) visit(path, []);
  assertEquals(circles.filter((circle) => !LAZY_CIRCLE.test(circle)), []);
});

/** Help and completions list all commands, themselves among them; each is loaded when it is chosen. */
const LAZY_CIRCLE = /cli\/commands\/mod\.ts/;
