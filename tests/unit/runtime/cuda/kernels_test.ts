/** Kernel files against the table that launches are made from: signatures, guards, coverage. No GPU. */
import { gradientOp } from "../../../../core/graph/differentiate.ts";
import { PRIMITIVES } from "../../../../core/graph/primitives.ts";
import type { Op } from "../../../../core/graph/program.ts";
import { assert, assertEquals } from "@std/assert";
import { type Kernel, KERNEL_HEADERS } from "../../../../core/runtime/cuda/kernels/define.ts";
import { KERNEL_FILES, KERNELS, RULES } from "../../../../core/runtime/cuda/kernels/mod.ts";
import { MODEL_OPS } from "../../../../core/ops/mod.ts";

interface Signature {
  readonly arguments: Kernel["arguments"];
  readonly threads: string;
  readonly body: string;
}

/** Every `extern "C"` kernel of a file. */
function signatures(text: string): Map<string, Signature> {
  const pattern =
    /extern "C" __global__ void __launch_bounds__\(([^)]*)\)\s+(\w+)\(([^)]*)\)\s*\{([\s\S]*?)\n\}/g;
  return new Map([...text.matchAll(pattern)].map(([, threads, name, list, body]) => [
    name!,
    { threads: threads!, body: body!, arguments: list!.split(",").map(parseArgument) },
  ]));
}

function parseArgument(text: string): Kernel["arguments"][number] {
  const words = text.replace(/\b(const|__restrict__)\b/g, " ").trim().split(
    /[\s*]+/,
  );
  const name = words.pop()!;
  if (text.includes("*")) return { name, type: "pointer" };
  const types = { int: "i32", "long long": "i64", float: "f32" } as const;
  return { name, type: types[words.join(" ") as keyof typeof types] };
}

Deno.test("the table and the kernels have the same signatures", () => {
  for (const file of KERNEL_FILES) {
    const found = signatures(file.text);
    assertEquals(file.kernels.map(({ entry }) => entry), [...found.keys()], file.name);
    for (const { entry, arguments: list } of file.kernels) {
      const told = list.map(({ name, type }) => ({ name, type }));
      assertEquals(told, found.get(entry)!.arguments, `${file.name} ${entry}`);
    }
  }
});

Deno.test("blocks have the threads that the kernel was compiled for", () => {
  const sizes = new Proxy({} as Record<string, number>, { get: () => 64 });
  for (const { file, entry, config } of KERNELS) {
    const { text } = file;
    const constants = Object.fromEntries(
      [...text.matchAll(/\b([A-Z]+) = (\d+)\b/g)].map(([, name, value]) => [name!, Number(value)]),
    );
    const [bounds] = signatures(text).get(entry)!.threads.split(",");
    const threads = bounds!.split("*").map((each) => constants[each.trim()] ?? Number(each))
      .reduce((product, factor) => product * factor, 1);
    assertEquals(config(sizes).block, [threads, 1, 1], `${file.name} ${entry}`);
  }
});

Deno.test("every size a launch config needs is an argument, a macro or named here", () => {
  /** Attention rows P·B in the forward pass, streams and batches: implied by the tensors. */
  const implied = ["rows", "P", "batch"];
  for (const kernel of KERNELS) {
    const defines = Object.keys(kernel.file.specialisations[0]!);
    const known = [...kernel.arguments.map(({ name }) => name), ...defines, ...implied];
    const asked = new Set<string>();
    const sizes = new Proxy({} as Record<string, number>, {
      get: (_, name) => (asked.add(String(name)), 33),
    });
    const { grid } = kernel.config(sizes);
    assert(grid.every((size) => Number.isInteger(size) && size > 0), kernel.entry);
    assertEquals([...asked].filter((name) => !known.includes(name)), [], kernel.entry);
  }
});

Deno.test("the first branch of every kernel leaves when there is nothing to do", () => {
  for (const file of KERNEL_FILES) {
    for (const [entry, { body }] of signatures(file.text)) {
      const guard = body.search(/if \([^\n]*\) return;/);
      const work = body.search(/\bfor \(|__syncthreads|\bload\(|\bstore\(/);
      assert(guard >= 0 && (work < 0 || guard < work), `${file.name} ${entry}`);
    }
  }
});

Deno.test("kernels include only headers of ours and never add atomically", () => {
  for (const { name: file, text } of KERNEL_FILES) {
    for (const [, name] of text.matchAll(/#include\s+["<]([^">]+)/g)) {
      assert(KERNEL_HEADERS.has(name!), `${file} includes ${name}`);
    }
    assert(!/\batomic[A-Z]/.test(text), `${file} adds in an order of its own`);
    assert(text.split("\n").every((line) => line.length <= 100), `${file} has a long line`);
  }
});

Deno.test("every file of the folder is in the program", async () => {
  const root = new URL("../../../../kernels/", import.meta.url);
  const files: string[] = [];
  for await (const folder of Deno.readDir(root)) {
    for await (const { name } of Deno.readDir(new URL(`${folder.name}/`, root))) {
      files.push(`${folder.name}/${name}`);
    }
  }
  const known = [...KERNEL_FILES.map(({ name }) => name), ...KERNEL_HEADERS.keys()];
  assertEquals(files.sort(), known.sort());
});

Deno.test("primitives, ops of the model and their gradients have a rule, and no two are of one name", () => {
  const names = [...RULES.keys()].map(({ name }) => name);
  assertEquals(names.length, new Set(names).size);
  for (const op of PRIMITIVES.values()) assert(RULES.has(op), op.name);
  for (const [name, op] of MODEL_OPS) {
    assert(RULES.has(op), name);
    // adamw ends a step
    assert(name === "adamw" || RULES.has(gradientOp(op) as Op), `gradient of ${name}`);
  }
});
