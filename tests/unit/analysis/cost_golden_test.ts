/** Protects the cost model: the official script's numbers, the corrected ones, the headline, speed. */
import { fileURLToPath } from "node:url";
import { assert, assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import {
  type CostQuestion,
  countShape,
  HALF_PRECISION,
  shapeOf,
} from "../../../core/analysis/cost.ts";
import {
  compareWithParameters,
  type Interpolation,
  type Match,
} from "../../../core/analysis/cost_equivalent.ts";
import { exactCost } from "../../../core/analysis/cost_exact.ts";
import {
  familyShape,
  findSize,
  memberOf,
  PAPER_FAMILY,
  STACK_LAW,
} from "../../../core/analysis/cost_family.ts";
import { listDiscrepancies, officialRates } from "../../../core/analysis/cost_discrepancies.ts";
import { paperCost, printedLine } from "../../../core/analysis/cost_paper.ts";
import { DEVICES, findDevice, peakTflops, ratesOf } from "../../../core/analysis/devices.ts";
import { parseConfig } from "../../../core/checkpoint/config.ts";
import { DataError } from "../../../core/base/errors.ts";
import { countParameters } from "../../../core/model/parameters.ts";

const FIXTURES = fileURLToPath(new URL("../../../fixtures/", import.meta.url));
const GOLDEN = JSON.parse(Deno.readTextFileSync(`${FIXTURES}analysis/cost.json`));
const RATES = officialRates();
const HEADLINE = findSize("1.6B")!;

/** Equal up to the 1e-9 that the golden file allows. */
function assertClose(found: number, expected: number, where: string): void {
  const error = Math.abs(found - expected);
  assert(error <= 1e-9 * Math.abs(expected), `${where}: found ${found}, expected ${expected}`);
}

function question(over: Partial<CostQuestion["work"]> = {}): CostQuestion {
  const work = { streams: 8, prefixTokens: 48, batch: 1, input: 256, output: 256, ...over };
  return { shape: HEADLINE.shape, work, rates: RATES, bytes: HALF_PRECISION };
}

Deno.test("all 768 rows of the official script and of the corrected model", () => {
  assertEquals(GOLDEN.rows.length, 768);
  for (const row of GOLDEN.rows) {
    const golden = Object.fromEntries(
      GOLDEN.columns.map((name: string, i: number) => [name, row[i]]),
    );
    const { hidden_size: hiddenSize, intermediate_size: intermediateSize } = golden;
    const asked: CostQuestion = {
      ...question(),
      shape: familyShape({ hiddenSize, intermediateSize }),
      work: {
        streams: golden.P,
        prefixTokens: 48,
        batch: golden.batch,
        input: golden.input,
        output: golden.output,
      },
    };
    assertEquals(memberOf(asked.shape)?.name, golden.shape);
    const paper = paperCost(asked), exact = exactCost(asked);
    const found: Record<string, number> = {
      paper_memory_bytes: paper.memoryBytes,
      paper_latency_s: paper.latencyS,
      paper_weight_bytes: paper.weightBytes,
      paper_kv_bytes: paper.kvBytes,
      paper_aggregator_bytes: paper.aggregatorBytes,
      paper_activation_bytes: paper.activationBytes,
      paper_prefill_s: paper.prefillS,
      paper_decode_step_s: paper.decodeStepS,
      paper_aggregator_s: paper.aggregatorS,
      paper_embedding_fix_s: paper.embeddingFixS,
      exact_memory_bytes: exact.memoryBytes,
      exact_latency_s: exact.latencyS,
      exact_weight_bytes: exact.weightBytes,
      exact_kv_bytes: exact.kvBytes,
      exact_activation_bytes: exact.activationBytes,
      exact_prefill_s: exact.prefillS,
      exact_decode_s: exact.decodeS,
    };
    for (const [name, value] of Object.entries(found)) assertClose(value, golden[name], name);
    assertEquals(printedLine(paper), golden.paper_printed);
  }
});

Deno.test("all 24 further cases: other shapes, devices and efficiencies", () => {
  assertEquals(GOLDEN.extra_cases.length, 24);
  for (const row of GOLDEN.extra_cases) {
    const device = findDevice(row.gpu_config)!;
    assertEquals([device.bandwidthGbS, device.tflops], [
      row.hbm_bandwidth_GBps,
      row.peak_fp16_TFLOPS,
    ]);
    const efficiency = { flops: row.flops_efficiency, memory: row.hbm_memory_efficiency };
    const asked: CostQuestion = {
      shape: familyShape({
        hiddenSize: row.hidden_size,
        intermediateSize: row.intermediate_size,
        numLayers: row.num_hidden_layers,
        numHeads: row.num_attention_heads,
        numKvHeads: row.num_key_value_heads,
        headDim: row.hidden_size / row.num_attention_heads,
      }),
      work: {
        streams: row.P,
        prefixTokens: row.parscale_prefix_tokens,
        batch: row.batch_size,
        input: row.input_length,
        output: row.output_length,
      },
      rates: ratesOf(device, efficiency, 16),
      bytes: HALF_PRECISION,
    };
    const paper = paperCost(asked), exact = exactCost(asked);
    assertClose(paper.memoryBytes, row.paper_memory_bytes, "paper memory");
    assertClose(paper.latencyS, row.paper_latency_s, "paper latency");
    assertClose(exact.memoryBytes, row.exact_memory_bytes, "exact memory");
    assertClose(exact.latencyS, row.exact_latency_s, "exact latency");
  }
});

const EQUAL = [64, 128, 256, 512].map((length) => ({ input: length, output: length }));

function headline(
  cost: typeof paperCost | typeof exactCost,
  batches: readonly number[],
  match: Match,
  interpolation: Interpolation,
  lengths: readonly { input: number; output: number }[] = EQUAL,
) {
  return compareWithParameters({
    base: HEADLINE.shape,
    streams: 8,
    prefixTokens: 48,
    workloads: batches.flatMap((batch) => lengths.map((pair) => ({ batch, ...pair }))),
    match,
    interpolation,
    law: STACK_LAW,
  }, (shape, work) => cost({ ...question(), shape, work }));
}

Deno.test("the paper's 22x memory and 6x latency, and all numbers on the way", () => {
  const computed = GOLDEN.paper_headline.computed;
  for (const [name, batches] of [["batch 1", [1]], ["batches 1,2,4,8", [1, 2, 4, 8]]] as const) {
    const memory = computed[`${name}: memory_bytes`], latency = computed[`${name}: latency_s`];
    for (const interpolation of ["geometric", "linear"] as const) {
      const found = headline(paperCost, batches, "observed", interpolation);
      assertEquals([found.lower, found.upper, found.loss], ["2.8B", "4.4B", 1.0383]);
      assertClose(found.t, memory.t, "t");
      for (
        const [golden, key, ratio] of [
          [memory, "memoryBytes", found.memoryRatio],
          [latency, "latencyS", found.latencyRatio],
        ] as const
      ) {
        assertClose(found.base[key], golden.base_1p6B_P1, "base");
        assertClose(found.parallel[key], golden.parscale_1p6B_P8, "parallel");
        assertClose(found.equivalent[key], golden[`equivalent_${interpolation}`], "equivalent");
        assertClose(ratio, golden[`ratio_${interpolation}`], "ratio");
      }
    }
  }
});

Deno.test("other procedures give the numbers the specification lists for them", () => {
  const ratios = (found: { memoryRatio: number; latencyRatio: number }) =>
    [found.memoryRatio, found.latencyRatio].map((ratio) => Number(ratio.toPrecision(3)));
  const pairs = EQUAL.flatMap(({ input }) => EQUAL.map(({ output }) => ({ input, output })));
  assertEquals(ratios(headline(paperCost, [1], "observed", "geometric", pairs)), [21.7, 6.74]);
  const law = headline(paperCost, [1], "law", "linear");
  assertEquals(ratios(law), [18.2, 5.18]);
  assertAlmostEquals(law.params! / 1e9, 2.9, 0.005);
  assertEquals(law.loss, undefined);
  assertEquals(ratios(headline(exactCost, [1], "observed", "geometric")), [16.7, 9.3]);
  assertEquals(ratios(headline(exactCost, [1, 2, 4, 8], "observed", "geometric")), [5.44, 2.81]);
});

Deno.test("a dense model that is not known is refused, unless the law can place it", () => {
  const compare = (base: CostQuestion["shape"], streams: number, match: Match) =>
    compareWithParameters({
      base,
      streams,
      prefixTokens: 48,
      workloads: [{ batch: 1, input: 64, output: 64 }],
      match,
      interpolation: "geometric",
      law: STACK_LAW,
    }, (shape, work) => exactCost({ ...question(), shape, work }));
  const other = familyShape({ hiddenSize: 512, intermediateSize: 1024 });
  const largest = PAPER_FAMILY.at(-1)!.shape;
  assertThrows(
    () => compare(other, 8, "observed"),
    DataError,
    "observed losses exist only for models of the paper: 0.5B",
  );
  assertThrows(
    () => compare(HEADLINE.shape, 3, "observed"),
    DataError,
    "no observed loss for 3 streams",
  );
  assertThrows(() => compare(largest, 8, "observed"), DataError, "largest dense model");
  for (const shape of [other, largest, { ...other, headDim: 64 }]) {
    const found = compare(shape, 8, "law");
    assert(found.memoryRatio > 1 && found.equivalent.latencyS > found.base.latencyS);
    assert(found.t >= 0 && found.t <= 1);
  }
});

Deno.test("each discrepancy has the effect that the specification states", () => {
  const points = listDiscrepancies(question(), findDevice("a100-sxm-80gb")!);
  assertEquals(points.map(({ number }) => number), Array.from({ length: 22 }, (_, i) => i + 1));
  const latency = (number: number) => Number((points[number - 1]!.latencyS! * 1000).toFixed(1));
  const memory = (number: number) => points[number - 1]!.memoryBytes;
  assertEquals([1, 3, 4, 6, 11].map(latency), [0, 0, 0.8, 6.7, 0]);
  assertEquals([9, 13, 14].map(latency), [-5.2, -0.9, 21.2]);
  assertEquals([7, 8, 10, 12, 17, 20].map(memory), [0, -3088, -138240, 0, 0, 0]);
  assert(points[5]!.note!.includes("41.8 ms instead of 35.1 ms"), points[5]!.note);
  assert(points[13]!.note!.includes("34.6 ms instead of 13.3 ms"), points[13]!.note);
  assertEquals(Math.round((memory(5)! + 4 * 151936) / 2 ** 20), 88);

  // Where a point is about the model or the device, it follows them.
  const slow = {
    ...question({ batch: 4 }),
    rates: ratesOf(DEVICES[0]!, { flops: 0.35, memory: 0.45 }, 16),
  };
  const shape = { ...HEADLINE.shape, tied: false, numKvHeads: 16, headDim: 128 };
  const others = listDiscrepancies({ ...slow, shape }, { ...DEVICES[0]!, capacityGb: 1 });
  assert(others[0]!.latencyS! < 0);
  assert(others[1]!.note!.includes("does not fit"));
  assertEquals(others[11]!.memoryBytes, -151936 * 1536 * 2);
  assert(others[18]!.note!.includes("stop here") && others[19]!.memoryBytes! < 0);
  assert(
    listDiscrepancies(slow, DEVICES[0]!)[6]!.memoryBytes! > 0,
    "prefix copies at larger batches",
  );
});

Deno.test("counts by formula are those of the list of tensors", () => {
  const folders = [...Deno.readDirSync(`${FIXTURES}models`)].map(({ name }) => name);
  for (const folder of folders) {
    const path = `${FIXTURES}models/${folder}/config.json`;
    const config = parseConfig(JSON.parse(Deno.readTextFileSync(path)), path);
    for (const streams of [1, 2, 8]) {
      const own = { ...config, streams, prefix: streams > 1 };
      const counts = countShape(shapeOf(own), streams, own.prefixTokens);
      const { total, introduced, embedding } = countParameters(own);
      assertEquals(
        [counts.total, counts.prefix + counts.aggregator, counts.embedding],
        [total, introduced, embedding],
        folder,
      );
    }
  }
});

Deno.test("a tie between thousandths goes to the even digit, as in Python", () => {
  const line = (gb: number, latencyS: number) =>
    printedLine({ memoryBytes: gb * 2 ** 30, latencyS, flops: 0 });
  assertEquals(line(3.0625, 0.1875), "Memory: 3.062GB; Latency: 0.188s");
  assertEquals(line(0.0005, 12.3456), "Memory: 0.001GB; Latency: 12.346s");
});

Deno.test("device names are unique and rates follow the width", () => {
  assertEquals(new Set(DEVICES.map(({ name }) => name)).size, DEVICES.length);
  const device = DEVICES[0]!;
  assertEquals([32, 16, 8, 4].map((bits) => peakTflops(device, bits)), [156, 312, 624, 1248]);
  assertEquals(peakTflops({ ...device, tflops32: 7, tops8: 5, tops4: 6 }, 4), 6);
});

Deno.test("ten thousand configurations take less than a second", () => {
  const began = performance.now();
  let sum = 0;
  for (let i = 0; i < 10_000; i++) {
    const asked = question({ batch: 1 + i % 8, input: 64 + i % 256, output: 128 });
    sum += exactCost(asked).latencyS + paperCost(asked).latencyS;
  }
  const seconds = (performance.now() - began) / 1000;
  assert(sum > 0 && seconds < 1, `${seconds} s`);
});
