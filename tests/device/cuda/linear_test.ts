/**
 * Linear layers of few rows on the cuda device, on an emulated machine, against the reference.
 *
 * Inputs are numbers that bf16 has, so that what differs is the kernels' own rounding: errors are
 * relative to the largest number of a result. Numbers of columns fill no block, and those of rows and
 * of k lie on both sides of what a kernel takes at a time. Each case checks which kernel runs.
 */
import { assertEquals } from "@std/assert";
import type { Program } from "../../../core/graph/program.ts";
import { elementCount } from "../../../core/graph/types.ts";
import { linear } from "../../../core/ops/linear.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { entriesOf, fileNamed, kernelNamed, launchesOf } from "../../unit/runtime/cuda/kernels.ts";
import type { ComputeType } from "../../../core/runtime/cuda/memory.ts";
import type { HostArray } from "../../../core/runtime/device.ts";
import { test as testKernel, values } from "../../emulator/testing.ts";
import { assertAgrees, drawNarrow } from "./checks.ts";
import { CUDA, openTestCuda, testIf } from "../devices.ts";
import { f32, programOf, runOn } from "../programs.ts";

const test = testIf(CUDA);

/** Columns of layers that read the same rows, such as queries, keys and values. */
const COLUMNS = [50, 17, 40];

/** The type of the results: the compute dtype, or f32 as they were added up. */
type Form = "cast" | "f32";

/** Rows and columns of x. */
type Sizes = Readonly<Record<"M" | "K", number>>;

function build({ M, K }: Sizes, form: Form): Program {
  return programOf("linear", { x: [M, K] }, ({ x }, g) =>
    Object.fromEntries(COLUMNS.map((N, i) => {
      const weight = g.input(`weight${i}`, f32(N, K));
      const bias = i === 1 ? undefined : g.input(`bias${i}`, f32(N)); // the second has none
      const y = linear({ x, weight, bias });
      return [`y${i}`, form === "f32" ? y : y.reshape([M * N])];
    })));
}

/** Numbers for every input; the same for the first rows of x, however many there are. */
function inputsOf(program: Program, K: number): Map<string, number[]> {
  return new Map([...program.inputs].map(([name, { shape }]) => {
    const size = name === "x" ? 1 : 2 / Math.sqrt(K);
    return [name, drawNarrow(new RandomStream(5, name), elementCount(shape), size)];
  }));
}

/** Compares layers that are one launch: on tensor cores, or of the kernel compiled for some rows. */
async function check(sizes: Sizes, form: Form, elements: ComputeType, rows: number) {
  const program = build(sizes, form);
  const launches = launchesOf(program, elements)
    .filter(({ kernel }) => kernel.entry.startsWith("linear"))
    .map(({ kernel, defines }) => [kernel.entry, defines.ROWS, defines.F32_OUT]);
  const isMma = elements === "bf16" && sizes.K % 32 === 0;
  const [entry, ROWS] = isMma ? ["linear_mma", undefined] : ["linear", rows];
  assertEquals(launches, [[entry, ROWS, Number(form === "f32")]], `${form}, ${sizes.K}`);
  const tolerance = elements === "bf16" && form === "cast" ? 2 ** -7 : 1e-5;
  const tolerances = Object.fromEntries(COLUMNS.map((_, i) => [`y${i}`, tolerance]));
  await assertAgrees(program, elements, { inputs: inputsOf(program, sizes.K), tolerances });
}

/** Rows of x, and those that the kernel is compiled for. */
const COMPILED_ROWS = [[1, 1], [2, 4], [4, 4], [5, 8], [7, 8], [8, 8]] as const;

for (const [M, ROWS] of COMPILED_ROWS) {
  test(`${M} rows through the kernel of few rows`, async () => {
    for (const K of [8, 20, 64, 136, 1248, 1272]) {
      await check({ M, K }, "cast", "bf16", ROWS);
      await check({ M, K }, "f32", "bf16", ROWS);
      await check({ M, K }, "cast", "f32", ROWS);
    }
  });
}

Deno.test("more than 8 rows are products of the library", () => {
  const entries = entriesOf(build({ M: 9, K: 64 }, "cast"));
  assertEquals(entries.filter((entry) => entry !== "copy"), []);
});

test("a row of bf16 has the same bits whatever rows are beside it", async () => {
  for (const K of [1248, 1272]) {
    const device = openTestCuda("bf16");
    const rowsOf = async (M: number): Promise<HostArray[]> => {
      const program = build({ M, K }, "f32");
      const found = await runOn(device, program, inputsOf(program, K));
      return COLUMNS.map((N, i) => found.get(`y${i}`)!.slice(0, 7 * N));
    };
    const few = await rowsOf(7);
    assertEquals(await rowsOf(8), few, `8 rows of ${K}`);
    device.close();
  }
});

/** Rows of a tensor, and behind them rows of NaN, so that there are `count` in all. */
function beforeNaN(rows: number, K: number, count: number, seed: number) {
  const data = new Float32Array(count * K).fill(NaN);
  data.set(values(rows * K, seed));
  return data;
}

/** Both kernels by file and entry, with a K that each takes. */
const KERNELS = [
  ["forward/linear.cu", "linear", 40],
  ["forward/linear_mma.cu", "linear_mma", 64],
] as const;

for (const [M, ROWS] of COMPILED_ROWS) {
  testKernel(
    `what lies behind ${M} rows and their weights does not count and is not touched`,
    (bench) => {
      for (const [file, entry, K] of KERNELS) {
        const [N, around] = [17, 72];
        const defines = { BF16: 1, ...(entry === "linear" && { ROWS }), F32_OUT: 0 };
        const x = bench.put(beforeNaN(M, K, around, 1), "bf16");
        const weight = bench.put(beforeNaN(N, K, around, 2), "bf16");
        const kernel = bench.kernel(fileNamed(file).text, entry, { defines });
        const y = bench.empty(2 * around * N);
        const sizes = { M, N0: N, N1: 0, N2: 0, K };
        bench.launch(kernel, kernelNamed(entry).config({ ...defines, ...sizes }), [
          ...[y, null, null, x, weight, null, null, null, null, null],
          ...Object.values(sizes).map((size) => ["i32", size] as const),
        ]);
        const found = bench.get(y, around * N, "bf16");
        assertEquals(found.findIndex(Number.isNaN), M * N, `rows of ${entry} are written`);
        assertEquals(found.subarray(M * N).every(Number.isNaN), true, "no more are");
      }
    },
  );
}
