/** Prompt lookup on 500 random requests; tests/device/generate has a few of each kind. */
import { CpuDevice } from "../../core/runtime/onnxruntime/cpu.ts";
import { openGolden } from "../device/goldens.ts";
import { compareRandom } from "../device/generate/speculating.ts";

const NAMES = [
  "qwen2-p1-tied-f32",
  "qwen2-p2-tied-f32",
  "qwen2-p4-untied-f32",
  "qwen3-p2-untied-f32",
];

for (const [i, name] of NAMES.entries()) {
  for (const threads of [1, 2]) {
    const about = `${name}, ${threads === 1 ? "one thread" : "two threads"}`;
    Deno.test(`${about}: 64 random requests with drafts give the events without`, async () => {
      const device = new CpuDevice({ threads });
      await compareRandom(await openGolden(name, device), 10_000 * (2 * i + threads), 64);
      device.close();
    });
  }
}
