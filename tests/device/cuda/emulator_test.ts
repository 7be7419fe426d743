/**
 * The emulated CUDA machine: what kernels and calls must not do is found. What kernels may rely on is seen
 * by the ops that rely on it, and matrix instructions are in ptx_test.ts.
 *
 * Needs Linux and g++; elsewhere every test is skipped.
 */
import { assertThrows } from "@std/assert";
import { CudaError } from "../../../core/runtime/cuda/driver/errors.ts";
import type { LaunchConfig } from "../../../core/runtime/cuda/driver/launch.ts";
import { fileNamed } from "../../unit/runtime/cuda/kernels.ts";
import { EMULATED_ARCHITECTURE, EmulatorError } from "../../emulator/mod.ts";
import { type Argument, testEmulated as test } from "../../emulator/testing.ts";
import { blocks } from "./checks.ts";

/** Kernels that break a rule, and what is said about them. */
const FAULTS: readonly [rule: string, body: string, text: string][] = [
  [
    "a barrier that some threads pass by",
    "if (threadIdx.x != 5) __syncthreads();",
    "kernel fault, block (0, 0, 0): barrier reached by 31 of 32 threads",
  ],
  [
    "a shuffle in one branch",
    "if (threadIdx.x < 7) __shfl_xor_sync(0xffffffffu, 1, 1); else __syncthreads();",
    "__shfl_xor_sync with mask ffffffff reached by lanes 0000007f of warp 0 only",
  ],
  [
    "different instructions that meet",
    "if (threadIdx.x < 7) __shfl_xor_sync(~0u, 1, 1); else __shfl_xor_sync(~0u, 1ll, 1);",
    "__shfl_xor_sync while lanes 0000007f of the warp are in __shfl_xor_sync",
  ],
  [
    "a mask that leaves out the caller",
    "__shfl_xor_sync(0xffff, 1, 1);",
    "thread (16, 0, 0): __shfl_xor_sync with mask 0000ffff, which leaves out lane 16",
  ],
  [
    "a matrix instruction without its warp",
    "__shared__ __align__(16) float x[4]; unsigned r[4]; if (threadIdx.x) ldmatrix_x4(r, x);",
    "ldmatrix_x4 without lanes 00000001 of its warp",
  ],
  ["a write past an allocation", "out[64 + threadIdx.x] = 1;", "after kernel fault"],
  ["a write before an allocation", "out[-1 - (int)threadIdx.x] = 1;", "after kernel fault"],
  [
    "a misaligned vector",
    "struct alignas(16) Four { float x[4]; }; ((Four*)(out + 1))->x[0] = 1;",
    "an access that is misaligned",
  ],
  ["an index outside an array", "__shared__ float x[4]; x[threadIdx.x] = 1;", "outside an array"],
  ["an access to nowhere", "*(volatile int*)(out + (1ll << 40)) = 1;", "to no memory"],
];

for (const [rule, body, text] of FAULTS) {
  test(`${rule} is reported`, (bench) => {
    const kernel = bench.kernelFrom(`fault(float* out) { ${body} }`);
    const out = bench.empty(256);
    bench.launch(kernel, blocks(32), [out]);
    assertThrows(() => bench.driver.synchronize(bench.stream), EmulatorError, text);
    bench.driver.synchronize(bench.stream);
  });
}

const COUNT = `count(int* x, int step) { x[threadIdx.x] += step; }`;

test("wrong calls get the codes of a real driver", (bench) => {
  const { driver, stream } = bench;
  const kernel = bench.kernelFrom(COUNT);
  const x = bench.empty(4);
  const step: Argument = ["i32", 1];
  const launch = (config: LaunchConfig) => () => bench.launch(kernel, config, [x, step]);
  assertThrows(launch(blocks(129)), CudaError, "INVALID_VALUE");
  assertThrows(launch(blocks(1, 1, 65536)), CudaError, "INVALID_VALUE");
  assertThrows(launch(blocks(0)), CudaError, "INVALID_VALUE");
  assertThrows(() => bench.launch(kernel, blocks(1), [8n, step]), EmulatorError, "argument 0");
  assertThrows(() => driver.synchronize(3n), CudaError, "INVALID_HANDLE");
  assertThrows(() => driver.free(x + 256n), CudaError, "INVALID_VALUE");
  assertThrows(() => driver.zero(x, 8, stream), CudaError, "INVALID_VALUE");
  assertThrows(() => driver.allocate(2 ** 33), CudaError, "OUT_OF_MEMORY");
  const module = driver.loadModule(
    bench.machine.compiler.compile(fileNamed("forward/rms_norm.cu"), {
      architecture: EMULATED_ARCHITECTURE,
      defines: { BF16: 0 },
    }).bytes,
    "rms_norm",
  );
  assertThrows(() => driver.getFunction(module, "other"), CudaError, "NOT_FOUND");
  driver.unloadModule(module);
  driver.synchronize(stream);
});
