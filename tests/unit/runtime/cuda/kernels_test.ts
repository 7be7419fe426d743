/** Kernel files against their declarations: arguments, blocks, guards, coverage. No GPU. */
import { gradientOp } from "../../../../core/graph/differentiate.ts";
import { PRIMITIVES } from "../../../../core/graph/primitives.ts";
import type { Op } from "../../../../core/graph/program.ts";
import { assert, assertEquals, assertThrows } from "@std/assert";
import { kernel, KERNEL_HEADERS } from "../../../../core/runtime/cuda/kernels/define.ts";
import { KERNEL_FILES, KERNELS, RULES } from "../../../../core/runtime/cuda/kernels/mod.ts";
import { MODEL_OPS } from "../../../device/ops/model_ops.ts";

/** Launch bounds and body of every `extern "C"` kernel of a file. */
function kernelsOf(text: string): Map<string, { readonly bounds: string; readonly body: string }> {
  const pattern =
    /extern "C" __global__ void __launch_bounds__\(([^)]*)\)\s+(\w+)\([^)]*\)\s*\{([\s\S]*?)\n\}/g;
  return new Map(
    [...text.matchAll(pattern)].map((
      [, bounds, name, body],
    ) => [name!, { bounds: bounds!, body: body! }]),
  );
}

Deno.test("every kernel of a file is declared, with the arguments of its text", () => {
  for (const { name, text, kernels } of KERNEL_FILES) {
    assertEquals(
      kernels.map(({ entry }) => entry).sort(),
      [...kernelsOf(text).keys()].sort(),
      name,
    );
  }
  const text = `extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
    some(const float* __restrict__ x, Element* y, int rows,
         long long count, float epsilon) {`;
  const file = { name: "some.cu", text, headers: KERNEL_HEADERS, specialisations: [], kernels: [] };
  const config = () => ({ grid: [1, 1, 1], block: [1, 1, 1] }) as const;
  assertEquals(kernel(file, "some", config).arguments.map(({ name, type }) => `${name} ${type}`), [
    ...["x pointer", "y pointer", "rows i32", "count i64", "epsilon f32"],
  ]);
  assertThrows(() => kernel(file, "other", config), TypeError, 'some.cu has no kernel "other"');
  const wrong = { ...file, text: text.replace("int rows", "double rows") };
  assertThrows(() => kernel(wrong, "some", config), TypeError, "double rows");
});

Deno.test("blocks have the threads that the kernel was compiled for", () => {
  const sizes = new Proxy({} as Record<string, number>, { get: () => 64 });
  for (const { file, entry, config } of KERNELS) {
    const { text } = file;
    const constants = Object.fromEntries(
      [...text.matchAll(/\b([A-Z]+) = (\d+)\b/g)].map(([, name, value]) => [name!, Number(value)]),
    );
    const [first] = kernelsOf(text).get(entry)!.bounds.split(",");
    const threads = first!.split("*").map((each) => constants[each.trim()] ?? Number(each))
      .reduce((product, factor) => product * factor, 1);
    assertEquals(config(sizes).block, [threads, 1, 1], `${file.name} ${entry}`);
  }
});

Deno.test("every size a launch config needs is an argument, a define or named here", () => {
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
    for (const [entry, { body }] of kernelsOf(file.text)) {
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

Deno.test("every CUDA source is in the program", async () => {
  const root = new URL("../../../../kernels/", import.meta.url);
  const files: string[] = [];
  for await (const folder of Deno.readDir(root)) {
    if (folder.name === "cpu") continue;
    for await (const { name } of Deno.readDir(new URL(`${folder.name}/`, root))) {
      files.push(`${folder.name}/${name}`);
    }
  }
  const known = [...KERNEL_FILES.map(({ name }) => name), ...KERNEL_HEADERS.keys()];
  assertEquals(files.sort(), known.sort());
});

/** Ops that are expanded, and those whose gradient is. */
const DELTA_NET = ["causal_conv", "gated_delta"].flatMap((name) => [name, `packed_${name}`])
  .concat("unit_lower_inverse");
const EXPANDED = ["embedding", "softmax", "silu", "stream_weights", ...DELTA_NET];
const EXPANDED_BACKWARD = ["softmax", "silu", "stream_weights", "repeat_streams", ...DELTA_NET];

Deno.test("primitives, ops of the model and their gradients have a rule or are expanded, and no two are of one name", () => {
  const names = [...RULES.keys()].map(({ name }) => name);
  assertEquals(names.length, new Set(names).size);
  for (const op of PRIMITIVES.values()) assert(RULES.has(op), op.name);
  for (const [name, op] of MODEL_OPS) {
    assertEquals(RULES.has(op), !EXPANDED.includes(name), name);
    const hasGradient = name !== "adamw" && !EXPANDED_BACKWARD.includes(name); // adamw ends a step
    assertEquals(RULES.has(gradientOp(op) as Op), hasGradient, `gradient of ${name}`);
  }
});
