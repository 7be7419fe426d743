/** Protects the cost model: the official script's numbers, the corrected ones, the headline, speed. */
import { assert, assertEquals } from "@std/assert";
import { type CostQuestion, countShape, meanCost } from "../../../core/analysis/cost.ts";
import { exactCost } from "../../../core/analysis/cost_exact.ts";
import { familyShape, findSize, memberOf } from "../../../core/analysis/cost_family.ts";
import { paperCost, printedLine } from "../../../core/analysis/cost_paper.ts";
import {
  DEFAULT_DEVICE,
  DEVICES,
  findDevice,
  peakTflops,
  ratesOf,
} from "../../../core/analysis/devices.ts";
import { parseConfig } from "../../../core/checkpoint/config.ts";
import { countParameters } from "../../../core/model/parameters.ts";
import { FIXTURES, readFixture } from "../../fixtures.ts";

const GOLDEN = readFixture("analysis/cost.json");
/** 16 bits for everything. */
const HALF_PRECISION = { weight: 2, activation: 2, cache: 2 };
/** Rates that the script always uses. */
const RATES = ratesOf(findDevice(DEFAULT_DEVICE)!, { flops: 0.7, memory: 0.9 }, 16);
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
    const columns: string[] = GOLDEN.columns;
    const golden = Object.fromEntries(columns.map((name, i) => [name, row[i]]));
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
    const paper = paperCost(asked);
    const costs = { paper: { ...paper, printed: printedLine(paper) }, exact: exactCost(asked) };
    for (const [column, expected] of Object.entries(golden)) {
      const [, method, name] = /^(paper|exact)_(.+)$/.exec(column) ?? [];
      if (!method) continue;
      const key = name!.replace("kv_", "kv_cache_").replace(/_(.)/g, (_, c) => c.toUpperCase());
      const found = (costs[method as "paper"] as unknown as Record<string, unknown>)[key];
      if (typeof expected === "string") assertEquals(found, expected);
      else assertClose(found as number, expected as number, column);
    }
  }
});

Deno.test("all 24 further cases: other shapes, devices and efficiencies", () => {
  assertEquals(GOLDEN.extra_cases.length, 24);
  for (const row of GOLDEN.extra_cases) {
    const device = findDevice(row.gpu_config)!;
    assertEquals(device.bandwidthGbS, row.hbm_bandwidth_GBps);
    assertEquals(device.tflops, row.peak_fp16_TFLOPS);
    const efficiency = { flops: row.flops_efficiency, memory: row.hbm_memory_efficiency };
    const asked: CostQuestion = {
      shape: familyShape({
        hiddenSize: row.hidden_size,
        intermediateSize: row.intermediate_size,
        numHiddenLayers: row.num_hidden_layers,
        numAttentionHeads: row.num_attention_heads,
        numKeyValueHeads: row.num_key_value_heads,
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

Deno.test("means over the paper's lengths give its 22x memory and 6x latency", () => {
  const computed = GOLDEN.paper_headline.computed;
  for (const [name, batches] of [["batch 1", [1]], ["batches 1,2,4,8", [1, 2, 4, 8]]] as const) {
    const works = batches.flatMap((batch) =>
      [64, 128, 256, 512].map((length) => ({ batch, input: length, output: length }))
    );
    const mean = (size: string, streams: number) => {
      const { shape } = findSize(size)!;
      return meanCost(works.map((work) => paperCost({ ...question({ ...work, streams }), shape })));
    };
    const columns = { memoryBytes: "memory_bytes", latencyS: "latency_s" };
    for (const key of ["memoryBytes", "latencyS"] as const) {
      const golden = computed[`${name}: ${columns[key]}`];
      const [base, parallel] = [mean("1.6B", 1)[key], mean("1.6B", 8)[key]];
      const [lower, upper] = [mean("2.8B", 1)[key], mean("4.4B", 1)[key]];
      const dense = lower ** (1 - golden.t) * upper ** golden.t;
      assertClose(base, golden.base_1p6B_P1, "base");
      assertClose(parallel, golden.parscale_1p6B_P8, "parallel");
      assertClose((dense - base) / (parallel - base), golden.ratio_geometric, "ratio");
    }
  }
});

Deno.test("counts by formula are those of the list of tensors", () => {
  const folders = [...Deno.readDirSync(`${FIXTURES}models`)].map(({ name }) => name);
  for (const folder of folders) {
    const path = `${FIXTURES}models/${folder}/config.json`;
    const config = parseConfig(JSON.parse(Deno.readTextFileSync(path)), path);
    for (const streams of [1, 2, 8]) {
      const own = { ...config, streams, prefix: streams > 1 };
      const counts = countShape(own, streams, own.prefixTokens);
      const { total, introduced, embedding } = countParameters(own);
      const found = [counts.total, counts.prefix + counts.aggregator, counts.embedding];
      assertEquals(found, [total, introduced, embedding], folder);
    }
  }
});

Deno.test("a tie between thousandths goes to the even digit, as in Python", () => {
  const line = (gb: number, latencyS: number) =>
    printedLine({ memoryBytes: gb * 2 ** 30, latencyS });
  assertEquals(line(3.0625, 0.1875), "Memory: 3.062GB; Latency: 0.188s");
  assertEquals(line(0.0005, 12.3456), "Memory: 0.001GB; Latency: 12.346s");
});

Deno.test("device names are unique and rates follow the width", () => {
  assertEquals(new Set(DEVICES.map(({ name }) => name)).size, DEVICES.length);
  const device = DEVICES[0]!;
  assertEquals([32, 16, 8, 4].map((bits) => peakTflops(device, bits)), [156, 312, 624, 1248]);
  assertEquals(peakTflops({ ...device, tflops32: 7, tops8: 5, tops4: 6 }, 4), 6);
});
