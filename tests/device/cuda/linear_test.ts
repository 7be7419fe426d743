/**
 * Linear layers of few rows on the cuda device, on an emulated machine, against the reference.
 *
 * Inputs are numbers that bf16 has, so that what differs is the kernels' own rounding: errors are
 * relative to the largest number of a result. Numbers of columns fill no block, and those of rows and
 * of k lie on both sides of what a kernel takes at a time. Each case checks which kernel runs.
 */
import { assertEquals } from "@std/assert";
import { Builder } from "../../../core/graph/builder.ts";
import type { Program } from "../../../core/graph/program.ts";
import { elementCount, type Shape } from "../../../core/graph/types.ts";
import { swiglu } from "../../../core/ops/activation.ts";
import { linear } from "../../../core/ops/linear.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { fileNamed, kernelNamed } from "../../unit/runtime/cuda/kernels.ts";
import type { ElementType } from "../../../core/runtime/cuda/tensor.ts";
import type { HostArray } from "../../../core/runtime/device.ts";
import { emulatorPresent } from "../../emulator/mod.ts";
import { Bench, values } from "../../emulator/testing.ts";
import { assertNear, drawNarrow, launchesOf } from "./checks.ts";
import { CUDA, openTestCuda, reference } from "../devices.ts";
import { runOn } from "../ops/cases.ts";

/** Columns of layers that read the same rows, such as queries, keys and values. */
const COLUMNS = [50, 17, 40];

/** What becomes of the products: of bf16 they stay so, or they leave as they were added up. */
type Form = "narrow" | "wide" | "swiglu";

/** Rows and columns of x. */
interface Sizes {
  readonly M: number;
  readonly K: number;
}

/** How far results may be off. */
const tolerance = (elements: ElementType, form: Form) =>
  elements === "bf16" && form !== "wide" ? 2 ** -7 : 1e-5;

const f32 = (shape: Shape) => ({ dtype: "f32", shape }) as const;

function build({ M, K }: Sizes, form: Form): Program {
  const g = new Builder("linear");
  const x = g.input("x", f32([M, K]));
  const weight = (name: string, N: number) => g.input(name, f32([N, K]));
  const N = COLUMNS[0]!;
  if (form === "swiglu") {
    const [gate, up] = ["gate", "up"].map((name) => linear({ x, weight: weight(name, N) }));
    g.output("y", swiglu({ gate: gate!, up: up! }));
    return g.build();
  }
  COLUMNS.forEach((N, i) => {
    // The second one has no bias.
    const bias = i === 1 ? undefined : g.input(`bias${i}`, f32([N]));
    const y = linear({ x, weight: weight(`weight${i}`, N), bias });
    g.output(`y${i}`, form === "wide" ? y : y.reshape([M * N]));
  });
  return g.build();
}

/** Numbers for every input; the same for the first rows of x, however many there are. */
function inputsOf(program: Program, K: number): Map<string, number[]> {
  return new Map([...program.inputs].map(([name, { shape }]) => {
    const size = name === "x" ? 1 : 2 / Math.sqrt(K);
    return [name, drawNarrow(new RandomStream(5, name), elementCount(shape), size)];
  }));
}

/** The one kernel of linear layers in a program, and its macros. */
function kernelOf(program: Program, elements: ElementType): string {
  const launches = launchesOf(program, elements).filter(({ kernel }) =>
    kernel.entry.startsWith("linear")
  );
  assertEquals(launches.length, 1, "what reads the same rows is one launch");
  const [{ kernel: { entry }, macros }] = launches as [typeof launches[0]];
  return `${entry} ROWS=${macros.ROWS} WIDE=${macros.WIDE}`;
}

/** Runs a program twice and compares it with the reference and itself. */
async function check(sizes: Sizes, form: Form, elements: ElementType, kernel: string) {
  const program = build(sizes, form);
  const name = `${form}, ${sizes.M} rows of ${sizes.K}`;
  assertEquals(kernelOf(program, elements), kernel, name);
  const inputs = inputsOf(program, sizes.K);
  const expected = await runOn(reference, program, inputs);
  const device = openTestCuda(elements);
  const found = await runOn(device, program, inputs);
  const again = await runOn(device, program, inputs);
  for (const key of program.outputs.keys()) {
    assertNear([found.get(key)!, expected.get(key)!], tolerance(elements, form), `${name}: ${key}`);
    assertEquals(found.get(key), again.get(key), `${name}: ${key} twice the same`);
  }
  device.close();
}

function test(name: string, fn: () => Promise<void>): void {
  Deno.test({ name, ignore: !CUDA, fn });
}

/** Rows of x, and those that the kernel is compiled for. */
const TENSOR_CORE_ROWS = [[2, 8], [7, 8], [8, 8], [9, 16], [16, 16], [33, 64], [64, 64]] as const;

for (const [M, ROWS] of [...TENSOR_CORE_ROWS, [31, 32]] as const) {
  test(`bf16 on tensor cores: ${M} rows`, async () => {
    for (const K of [8, 40, 64, 136, 544, 1272]) {
      await check({ M, K }, "narrow", "bf16", `linear_mma ROWS=${ROWS} WIDE=0`);
      await check({ M, K }, "wide", "bf16", `linear_mma ROWS=${ROWS} WIDE=1`);
      await check({ M, K }, "swiglu", "bf16", `linear_swiglu_mma ROWS=${ROWS} WIDE=0`);
    }
  });
}

test("bf16 without tensor cores: one row, and rows that begin anywhere", async () => {
  for (const sizes of [{ M: 1, K: 136 }, { M: 9, K: 20 }]) {
    await check(sizes, "narrow", "bf16", "linear ROWS=1 WIDE=0");
    await check(sizes, "wide", "bf16", "linear ROWS=1 WIDE=1");
    await check(sizes, "swiglu", "bf16", "linear_swiglu ROWS=1 WIDE=0");
  }
});

test("f32 is never multiplied on tensor cores", async () => {
  for (const [M, ROWS] of [[1, 1], [3, 4], [33, 8]] as const) {
    await check({ M, K: 136 }, "narrow", "f32", `linear ROWS=${ROWS} WIDE=0`);
    await check({ M, K: 136 }, "swiglu", "f32", `linear_swiglu ROWS=${ROWS} WIDE=0`);
  }
});

test("a row of bf16 has the same bits whatever rows are beside it", async () => {
  const K = 1272;
  const device = openTestCuda("bf16");
  const rowsOf = async (M: number): Promise<HostArray[]> => {
    const program = build({ M, K }, "wide");
    const found = await runOn(device, program, inputsOf(program, K));
    return COLUMNS.map((N, i) => found.get(`y${i}`)!.slice(0, 7 * N));
  };
  const few = await rowsOf(7);
  for (const M of [16, 32, 64]) assertEquals(await rowsOf(M), few, `${M} rows`);
  device.close();
});

/** Rows of a tensor, and behind them rows of NaN, so that there are `count` in all. */
function beforeNaN(rows: number, K: number, count: number, seed: number) {
  const data = new Float32Array(count * K).fill(NaN);
  data.set(values(rows * K, seed));
  return data;
}

for (const [M, ROWS] of TENSOR_CORE_ROWS) {
  Deno.test({
    name: `what lies behind ${M} rows and their weights does not count and is not touched`,
    ignore: !emulatorPresent(),
    fn() {
      const [N, K, around] = [17, 40, 72];
      const bench = new Bench();
      const source = fileNamed("forward/linear_mma.cu");
      const defines = { BF16: 1, ROWS, WIDE: 0 };
      const x = bench.put(beforeNaN(M, K, around, 1), "bf16");
      const [gate, up] = [2, 3].map((seed) => bench.put(beforeNaN(N, K, around, seed), "bf16"));
      const launch = (
        entry: string,
        sizes: Record<string, number>,
        pointers: (bigint | null)[],
      ) => {
        const kernel = bench.kernel(source.text, entry, { headers: source.headers, defines });
        const { geometry } = kernelNamed(entry);
        const y = bench.empty(2 * around * N);
        const numbers = Object.values(sizes).map((size) => ["i32", size] as const);
        bench.launch(kernel, geometry({ ...defines, ...sizes }), [y, ...pointers, ...numbers]);
        const found = bench.get(y, around * N, "bf16");
        assertEquals(found.findIndex(Number.isNaN), M * N, `${entry}: rows are written`);
        assertEquals(found.subarray(M * N).every(Number.isNaN), true, `${entry}: no more are`);
      };
      const none = Array<null>(5).fill(null);
      const layers = [null, null, x, gate!, ...none];
      launch("linear_mma", { M, N0: N, N1: 0, N2: 0, K }, layers);
      launch("linear_swiglu_mma", { M, N, K }, [x, gate!, up!]);
      bench.close();
    },
  });
}
