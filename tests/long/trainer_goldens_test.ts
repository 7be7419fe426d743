/** The golden training runs on the devices in JavaScript, whose loops take seconds for each. */
import { ReferenceDevice } from "../../core/runtime/reference/device.ts";
import { openTfjsInJavaScript } from "../device/devices.ts";
import { testGoldenRuns } from "../device/train/golden_runs.ts";

await testGoldenRuns(
  [
    { name: "reference in f32", device: new ReferenceDevice("f32") },
    { name: "tfjs in JavaScript", device: openTfjsInJavaScript() },
  ],
  (device, model, run) =>
    run !== "same_batch" && (device.startsWith("reference") || model === "qwen2-p4-untied-f32"),
);
