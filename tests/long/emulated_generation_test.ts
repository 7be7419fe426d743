/** Losses, greedy decoding and beam search of the golden models on the emulated cuda device. */
import { testGeneration } from "../device/ops/conformance.ts";
import { CUDA, openTestCuda } from "../device/devices.ts";
import { GOLDEN_NAMES, takesGolden } from "../device/goldens.ts";

if (CUDA?.includes("emulated")) {
  for (const name of GOLDEN_NAMES.filter((name) => takesGolden(CUDA!, name))) {
    testGeneration(name, [CUDA, () => openTestCuda()]);
  }
}
