/**
 * Golden training runs on the devices in JavaScript, whose loops take seconds for each: those of few models,
 * with `PARSCALE_LONG_TESTS=1` of all.
 */
import { ReferenceDevice } from "../../core/runtime/reference/device.ts";
import { openTfjsInJavaScript } from "../device/devices.ts";
import { takesGolden } from "../device/goldens.ts";
import { testGoldenRuns } from "../device/train/golden_runs.ts";

testGoldenRuns(
  [
    { name: "reference in f32", device: new ReferenceDevice("f32") },
    { name: "tfjs in JavaScript", device: await openTfjsInJavaScript() },
  ],
  (device, model, run) =>
    run !== "same_batch" &&
    (model === "qwen2-p4-untied-f32" ||
      device.startsWith("reference") && takesGolden("tfjs", model)),
);
