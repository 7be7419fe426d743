/** Dynamic parallel scaling: one loaded backbone under adapters with other numbers of streams. */
import { assert, assertEquals } from "@std/assert";
import { openCheckpoint } from "../../../core/checkpoint/open.ts";
import { Engine } from "../../../core/generate/engine.ts";
import type { ModelConfig } from "../../../core/model/config.ts";
import { introducedValues } from "../../../core/model/init.ts";
import { parameterSpecs } from "../../../core/model/parameters.ts";
import type { FileTensor, HostTensor } from "../../../core/runtime/device.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { withScratch } from "../../scratch.ts";
import { logitsOf } from "../../device/engines.ts";
import { maxDifference, modelFolder } from "../../device/goldens.ts";

const BACKBONE = "qwen2-p1-tied-f32";

function adapterOf(base: ModelConfig, streams: number, prefixTokens: number) {
  const config = { ...base, streams, prefix: true, prefixTokens, smoothing: 0.1 };
  const specs = parameterSpecs(config).filter((spec) => spec.introduced);
  const adapter = new Map(specs.map((spec): [string, HostTensor] => {
    // Larger than they usually begin, so that streams and adapters differ visibly.
    const data = introducedValues(spec, streams).map((x) => 30 * x);
    return [spec.name, { dtype: "f32", shape: spec.shape, data }];
  }));
  return { config, adapter };
}

const lastLogits = (engine: Engine) => logitsOf(engine, [[5, 9, 12]], [2]);

Deno.test("switching streams on a loaded backbone reads nothing of it again", () =>
  withScratch(async (folder) => {
    for (const name of ["config.json", "model.safetensors"]) {
      Deno.copyFileSync(`${modelFolder(BACKBONE)}/${name}`, `${folder}/${name}`);
    }
    const device = new CpuDevice({ threads: 1 });
    const { config, tensors } = await openCheckpoint(folder);
    const kinds = [[2, 6], [4, 6], [8, 3]] as const;
    const adapters = kinds.map(([P, M]) => adapterOf(config, P, M));
    let engine = new Engine(device, adapters[0]!.config, tensors, adapters[0]!);
    const results = [await lastLogits(engine)];
    Deno.removeSync(`${folder}/model.safetensors`); // reading it again would fail
    for (const { config, adapter } of adapters.slice(1)) {
      engine = engine.withAdapter(config, adapter);
      results.push(await lastLogits(engine));
    }
    assertEquals(device.sessionCount, 1);

    const { tensors: intact } = await openCheckpoint(modelFolder(BACKBONE));
    for (const [i, { config, adapter }] of adapters.entries()) {
      const whole = new Map<string, HostTensor | FileTensor>([...intact, ...adapter]);
      const built = new CpuDevice({ threads: 1 });
      const expected = await lastLogits(new Engine(built, config, whole));
      assert(maxDifference(results[i]!, expected) < 1e-5, `adapter ${i}`);
      built.close();
    }
    assert(maxDifference(results[0]!, results[1]!) > 1e-2, "adapters must differ");
    device.close();
  }));
