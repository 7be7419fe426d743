/** The golden models on every device: logits, weights, traces, losses, greedy, beams. */
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import { type Opener, testForward, testGeneration } from "../ops/conformance.ts";
import { CUDA, openTestCuda } from "../devices.ts";
import { GOLDEN_NAMES, takesGolden } from "../goldens.ts";

/** Devices that generate. The emulator takes longest, so its generations are in tests/long. */
const engines: readonly Opener[] = [
  ["cpu", () => new CpuDevice()],
  ["cpu, in parts", () => new CpuDevice({ threads: 2, splitAbove: 64 })],
  ...(CUDA ? [[CUDA, () => openTestCuda()] as const] : []),
];

for (const name of GOLDEN_NAMES) {
  testForward(name, ["reference", () => new ReferenceDevice("f64")]);
  for (const engine of engines.filter(([label]) => takesGolden(label, name))) {
    testForward(name, engine);
    if (!engine[0].includes("emulated")) testGeneration(name, engine);
  }
}
