/** Beams keep what they are made of, however they are moved, in a table or as copies. */
import { assert, assertEquals } from "@std/assert";
import { openBeamCache, type SelectedBeams } from "../../../core/generate/beam_cache.ts";
import type { Engine } from "../../../core/generate/engine.ts";
import type { KvCache } from "../../../core/generate/kv_cache.ts";
import { RandomStream } from "../../../core/base/random.ts";
import type { HostTensor } from "../../../core/runtime/device.ts";
import { TRAITS } from "../../../core/runtime/traits.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { openGolden } from "../../device/goldens.ts";

/** 40 steps from a prompt of 100 tokens grow past the 128 slots of the first cache. */
const [BEAMS, PROMPT, STEPS] = [4, 100, 40];

class PagingDevice extends CpuDevice {
  override readonly traits = { ...TRAITS.cpu, pagedCache: true };
}

/** Elements of one slot in all tensors and streams of a row of the batch. */
function* cells(engine: Engine, { tensors, batch, capacity }: KvCache, row: number, slot: number) {
  const { numKeyValueHeads: K, headDim: D } = engine.config;
  for (const tensor of tensors.values()) {
    for (let r = row; r < tensor.shape[0]!; r += batch) {
      const at = (r * K * capacity + slot) * D;
      yield { data: (tensor as HostTensor).data, at, stream: Math.floor(r / batch) };
    }
  }
}

/** Writes a token where a step does. */
function write(engine: Engine, cache: KvCache, row: number, slot: number, token: number): void {
  for (const { data, at, stream } of cells(engine, cache, row, slot)) data[at] = 8 * token + stream;
}

/** The tokens of a beam, as attention finds them. */
function read(
  engine: Engine,
  { cache, rows, table }: SelectedBeams,
  b: number,
  used: number,
): number[] {
  return Array.from({ length: used }, (_, slot) => {
    const row = table ? table[b * cache.capacity + slot]! : rows[b]!;
    const found = [...cells(engine, cache, row, slot)]
      .map(({ data, at, stream }) => (data[at]! - stream) / 8);
    assertEquals(new Set(found).size, 1, "the same token in every tensor and stream");
    return found[0]!;
  });
}

for (const Kind of [CpuDevice, PagingDevice]) {
  const how = Kind === CpuDevice ? "as copies" : "in a table";
  Deno.test(`beams moved ${how} keep their tokens, and the cache grows`, async () => {
    const device = new Kind({ threads: 1 });
    const engine = await openGolden("qwen2-p2-tied-f32", device);
    using prompt = engine.createCache(1, PROMPT);
    for (let slot = 0; slot < PROMPT; slot++) write(engine, prompt, 0, slot, slot + 1);
    using caches = openBeamCache(engine, prompt, BEAMS, PROMPT);
    const random = new RandomStream(1, "beams");
    const start = Array.from({ length: PROMPT }, (_, slot) => slot + 1);
    let beams = [start];
    const capacities = new Set<number>();
    for (let step = 0; step < STEPS; step++) {
      const used = PROMPT + step;
      const open = step % 5 === 4 ? 2 : BEAMS; // the others are not read
      const from = Array.from({ length: open }, () => random.integer(beams.length));
      const selected = caches.select(from, used);
      capacities.add(selected.cache.capacity);
      beams = from.map((of, b) => [...beams[of]!, PROMPT + step * BEAMS + b + 1]);
      const { cache, rows } = selected;
      beams.forEach((tokens, b) => write(engine, cache, rows[b]!, used, tokens[used]!));
      beams.forEach((tokens, b) => assertEquals(read(engine, selected, b, used + 1), tokens));
    }
    assert(capacities.size > 1);
    device.close();
  });
}
