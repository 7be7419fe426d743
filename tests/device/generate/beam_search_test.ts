/**
 * Beams that are moved in a table, on the cuda device, against beams that are copied. Golden searches
 * run through the table in `model/model_test.ts`.
 */
import { assert, assertEquals } from "@std/assert";
import { beamSearch } from "../../../core/generate/beam_search.ts";
import type { KvCache } from "../../../core/generate/kv_cache.ts";
import type { CudaDevice } from "../../../core/runtime/cuda/device.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { CUDA, openTestCuda, testIf } from "../devices.ts";
import { prompt } from "../engines.ts";
import { openGolden, TOLERANCE } from "../goldens.ts";

const test = testIf(CUDA);
const BEAMS = 3;

/** Searches, and counts copies of tensors. */
async function search(model: string, device: CudaDevice | CpuDevice, length: number) {
  let copies = 0;
  const copy = device.copy.bind(device) as CpuDevice["copy"];
  device.copy = (...call: Parameters<CpuDevice["copy"]>) => {
    copies++;
    copy(...call);
  };
  const engine = await openGolden(model, device);
  const results = await beamSearch(engine, prompt(3, length), {
    ...{ beams: BEAMS, maxTokens: 12, lengthPenalty: 1, eosTokenIds: [] },
  });
  const rows = rowsOf(engine.createCache(1, 1));
  device.close();
  return { results, copies, rows };
}

/** Rows of all tensors of a cache: copies of a sequence. */
function rowsOf({ tensors }: KvCache): number {
  return [...tensors.values()].reduce((sum, { shape }) => sum + shape[0]!, 0);
}

/** The device as one whose attention finds keys and values in their own rows alone. */
function copying(device: CudaDevice): CudaDevice {
  const traits = { ...device.traits, pagedCache: false };
  return Object.defineProperty(device, "traits", { value: traits });
}

for (const model of ["qwen2-p1-tied-f32", "qwen2-p4-untied-f32"]) {
  for (const elements of ["f32", "bf16"] as const) {
    // The smallest cache of a device of static shapes has 256 slots.
    for (const [length, grows] of [[20, 0], [250, 1]] as const) {
      test(`${model} in ${elements}, prompt of ${length}: beams in a table equal copied ones`, async () => {
        const paged = await search(model, openTestCuda(elements), length);
        const copied = await search(model, copying(openTestCuda(elements)), length);
        assertEquals(paged.results, copied.results);
        // The prompt once, and where the cache grows, every row once.
        assertEquals(paged.copies, paged.rows * (1 + BEAMS * grows));
        assert(copied.copies > paged.copies);
        if (elements === "bf16") return;
        const { results } = await search(model, new CpuDevice({ threads: 1 }), length);
        assertEquals(paged.results.map((x) => x.tokens), results.map((x) => x.tokens));
        results.forEach(({ score }, i) => {
          assert(Math.abs(paged.results[i]!.score - score) <= TOLERANCE.beamScore);
        });
      });
    }
  }
}
