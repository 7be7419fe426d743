/**
 * Caches are returned as soon as they are done, and never used afterwards: on a device that spoils what
 * is returned to it, results are the same, and nothing is left behind.
 */
import { assert, assertEquals } from "@std/assert";
import { beamSearch } from "../../../core/generate/beam_search.ts";
import type { Engine } from "../../../core/generate/engine.ts";
import { generate } from "../../../core/generate/generate.ts";
import { scoreBatch } from "../../../core/generate/score.ts";
import { scoreSets } from "../../../core/generate/score_sets.ts";
import { Scheduler } from "../../../core/generate/scheduler.ts";
import { NumericalError } from "../../../core/base/errors.ts";
import type { TensorType } from "../../../core/graph/types.ts";
import type { Device, DeviceTensor, HostTensor } from "../../../core/runtime/device.ts";
import { TRAITS, type Traits } from "../../../core/runtime/traits.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { prompt, request } from "../../device/engines.ts";
import { openGolden } from "../../device/goldens.ts";

const MODEL = "qwen2-p2-tied-f32";

/** Counts KV caches' tensors, the only ones with four axes, and fills with NaN what is returned. */
class SpoilingDevice extends CpuDevice implements Device {
  override traits: Traits = { ...TRAITS.cpu };
  readonly live = new Set<DeviceTensor>();
  most = 0;

  override allocate(type: TensorType): DeviceTensor {
    const tensor = super.allocate(type);
    if (type.shape.length === 4) this.live.add(tensor);
    this.most = Math.max(this.most, this.live.size);
    return tensor;
  }

  free(tensor: DeviceTensor): void {
    assert(this.live.delete(tensor), "returned twice, or never had");
    (tensor as HostTensor).data.fill(NaN);
  }
}

/** Prompts that have a prefix in common, which is copied from the one before. */
const text = (index: number, length: number, from = 0) => [
  ...Array.from({ length: 20 }, (_, i) => 7 * i + from),
  ...prompt(index, length),
];

/** Everything that makes caches. */
const USES: Readonly<Record<string, (engine: Engine) => Promise<unknown>>> = {
  async generate(engine) {
    const requests = Array.from(
      { length: 7 },
      (_, i) => request(text(i, 3 + 50 * (i % 3)), { maxTokens: 3 + 40 * (i % 4) }),
    );
    return await Array.fromAsync(generate(engine, requests, { batch: 3 }));
  },
  async "generate, left early"(engine) {
    const long = request(text(1, 5), { maxTokens: 50 });
    for await (const event of generate(engine, [long, long], { batch: 2 })) {
      if (event.kind === "token") return event.token;
    }
  },
  beamSearch: (engine) =>
    beamSearch(engine, text(2, 90), {
      ...{ beams: 3, maxTokens: 40, lengthPenalty: 1, eosTokenIds: [] },
    }),
  scoreBatch: (engine) =>
    scoreBatch(engine, [{ tokens: text(3, 9), from: 1 }, { tokens: text(4, 30), from: 4 }]),
  scoreSets: async (engine) =>
    await Array.fromAsync(scoreSets(
      engine,
      [0, 1, 2].map((i) =>
        [0, 1, 2].map((j) => ({ tokens: [...text(5 + i, 12), ...text(9 + j, 2 + j, 3)], from: 33 }))
      ),
      { batch: 4 },
    )),
  scoreStreams: (engine) =>
    scoreBatch(engine, [{ tokens: text(6, 8), from: 1 }, { tokens: text(7, 8), from: 1 }], {
      streams: true,
    }),
};

const USES_OF_CACHES = [
  ...Object.entries(USES).map(([name, use]) => ({ name, use, throughTable: false })),
  { name: "beamSearch through a table", use: USES.beamSearch!, throughTable: true },
];

for (const { name, use, throughTable } of USES_OF_CACHES) {
  Deno.test(`${name} returns its caches, and uses none that it has returned`, async () => {
    const plain = new CpuDevice({ threads: 1 });
    const device = new SpoilingDevice({ threads: 1 });
    device.traits = { ...TRAITS.cpu, pagedCache: throughTable };
    const expected = await use(await openGolden(MODEL, plain));
    assertEquals(await use(await openGolden(MODEL, device)), expected);
    assertEquals(device.live.size, 0);
    assert(device.most > 0, "there were caches");
    plain.close();
    device.close();
  });
}

Deno.test("a prompt that fails returns the cache of its group at once", async () => {
  const device = new SpoilingDevice({ threads: 1 });
  const engine = await openGolden(MODEL, device);
  engine.forward = () => Promise.reject(new NumericalError("a NaN"));
  using scheduler = new Scheduler(engine, { batch: 2 });
  scheduler.add(0, request(text(0, 5), { maxTokens: 3 }));
  const events = await Array.fromAsync(scheduler.round());
  assertEquals(events.map(({ kind }) => kind), ["failed"]);
  assertEquals([device.live.size, device.most > 0], [0, true]);
  device.close();
});
