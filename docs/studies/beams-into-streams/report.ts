/** Prints the tables of the study of beams into streams from `results`: `deno task distil-report`. */
import { columnsOf, plainTable } from "../../../cli/output/table.ts";
import { pairedDifference } from "../../../core/eval/harness/paired.ts";
import { bootstrapDifference } from "../frozen-smollm2/report.ts";
import { lossOf, type Total } from "../frozen-smollm2/study.ts";
import { interval, share } from "../qwen-humaneval/report.ts";
import type { Passes } from "../qwen-humaneval/study.ts";
import { ARMS, type Benchmark, BENCHMARKS, LABELS, readResults } from "./study.ts";

/** Compared methods: every arm with its source, then the other criteria, then what describes. */
const COMPARISONS: readonly (readonly [method: string, control: string])[] = [
  ...Object.keys(ARMS).map((arm) => [arm, "source"] as const),
  ["p1", "source-4"],
  ["p4", "lora"],
  ["p1", "p1-unverified"],
  ["p4", "source-4"],
  ["p4", "p1"],
  ["p1", "p1-solutions"],
  ["p1", "p1-greedy"],
  ["p1", "p1-samples"],
  ["p1-long", "p1"],
  ["p4-long", "p1-long"],
  ["p4-long", "lora-long"],
  ["p1-long", "lora-long"],
  ["p4-long", "source-2"],
  ["p1-long", "source-2"],
  ["p4-long", "p4"],
  ["p4-long", "source-4"],
  ["p4-long-4", "source-4"],
  ["p4-second", "p4-long"],
];

type AllPasses = Readonly<Record<string, Passes>>;

/** Of a method, problem by problem the mean over its seeds; undefined before it has answered. */
function meanOf(all: AllPasses, method: string, benchmark: Benchmark): Passes | undefined {
  const seeds = [0, 1, 2].flatMap((seed) => all[`${method}-${seed}.${benchmark}`] ?? []);
  if (seeds.length === 0) return undefined;
  const mean = (tests: keyof Passes) =>
    seeds[0]![tests].map((_, i) => seeds.reduce((sum, s) => sum + s[tests][i]!, 0) / seeds.length);
  return { base: mean("base"), plus: mean("plus") };
}

function passRows(all: AllPasses, benchmark: Benchmark) {
  return Object.entries(LABELS).flatMap(([name, method]) => {
    const passes = meanOf(all, name, benchmark);
    if (!passes) return [];
    const seeds = [0, 1, 2].filter((seed) => all[`${name}-${seed}.${benchmark}`]).length;
    return [{ benchmark, method, seeds, passed: share(passes.base), plus: share(passes.plus) }];
  });
}

function comparisonRows(all: AllPasses, benchmark: Benchmark) {
  return COMPARISONS.flatMap(([method, control]) => {
    const a = meanOf(all, method, benchmark), b = meanOf(all, control, benchmark);
    if (!a || !b) return [];
    const by = (tests: keyof Passes) => {
      const found = pairedDifference(a[tests], b[tests]);
      return found ? interval(3, [found.difference, found.low, found.high]) : "-";
    };
    const names = { method: LABELS[method], minus: LABELS[control] };
    return [{ benchmark, ...names, passed: by("base"), plus: by("plus") }];
  });
}

function lossRows(losses: Readonly<Record<string, readonly Total[]>>) {
  return Object.entries(losses).map(([name, documents]) => {
    const source = losses["source-0"]!;
    const change = documents.map(({ tokens, nats }, i) => (
      { tokens, nats: nats - source[i]!.nats }
    ));
    const difference = documents === source ? "" : interval(3, bootstrapDifference(change));
    return { method: name, loss: lossOf(documents).toFixed(3), difference };
  });
}

if (import.meta.main) {
  const passes = await readResults<Passes>("passes");
  const training = await readResults<{ stream_weights: readonly number[] | null }>("training");
  const kinds = Object.keys(BENCHMARKS) as Benchmark[];
  const tables = [
    kinds.flatMap((kind) => passRows(passes, kind)),
    kinds.flatMap((kind) => comparisonRows(passes, kind)),
    lossRows(await readResults<readonly Total[]>("losses")),
    Object.entries(training).map(([arm, { stream_weights: weights, ...numbers }]) => (
      { arm, ...numbers, weights: weights?.map((weight) => weight.toFixed(2)).join(", ") ?? "" }
    )),
  ];
  for (const rows of tables.filter((rows) => rows.length > 0)) {
    console.log(plainTable(columnsOf(rows), rows));
  }
}
