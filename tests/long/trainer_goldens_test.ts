/** The golden training runs on the reference device, whose loops in JavaScript take seconds for each. */
import { ReferenceDevice } from "../../core/runtime/reference/device.ts";
import { testGoldenRuns } from "../device/train/golden_runs.ts";

await testGoldenRuns(
  [{ name: "reference in f32", device: new ReferenceDevice("f32") }],
  (_, model, run) => run !== "same_batch" && model !== "qwen2-p4-untied-f32",
);
