/**
 * Carries out `parscale bench`: opens everything, lets all rows take turns, writes them as they end.
 *
 * Rows are complete in the last round only, one after another. Comparing is in `compare.ts`.
 */
import { centerOf } from "../../../core/base/statistics.ts";
import { VERSION } from "../../../core/base/version.ts";
import { bucketFor, type KvCache } from "../../../core/generate/kv_cache.ts";
import { timeDecode, timePrefill } from "../../../core/generate/timing.ts";
import type { Session } from "../../../core/session/session.ts";
import type { PlanText } from "../../framework/command.ts";
import { requireFreeMemory } from "../../input/limits.ts";
import { openModel } from "../../input/open_model.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { Progress } from "../../output/progress.ts";
import { Report } from "../../output/report.ts";
import type { Column } from "../../output/table.ts";
import { bytesText, counted } from "../../output/units.ts";
import { compareTimings, readTimings, SCHEMA } from "./compare.ts";
import { type ComparisonPlan, slotsOf, type Streams, type TimingPlan, type Work } from "./plan.ts";

export { plan } from "./plan.ts";

const COLUMNS: readonly Column[] = [
  { key: "what" },
  { key: "streams", title: "P" },
  { key: "introduced" },
  { key: "batch" },
  { key: "context" },
  { key: "prompt" },
  { key: "device" },
  { key: "weights" },
  { key: "median_ms", title: "ms", digits: 2 },
  { key: "spread_ms", title: "spread", digits: 2 },
  { key: "tokens_per_s", title: "tokens/s", digits: 1 },
  { key: "ratio", digits: 2 },
];

/** Runs the command; the number is its exit code. */
export async function run(
  plan: ComparisonPlan | TimingPlan,
  io: Io,
  invocation: Invocation,
): Promise<number> {
  if (plan.kind === "compare") return await compareTimings(plan, io, invocation);
  using opened = new DisposableStack();
  const cells = await openCells(plan, opened, io);
  memoryOf(cells);
  const devices = new Set(cells.map(({ on }) => on.device));
  using report = new Report(io, invocation, {
    schema: SCHEMA,
    device: [...devices].join(","),
    shown: COLUMNS,
  });
  const firsts = new Map<Work["what"], number>();
  for await (const cell of roundRobin(cells, plan, io)) {
    const { what } = cell.work;
    const row = cell.row(firsts.get(what));
    if (!firsts.has(what)) firsts.set(what, row.median_ms);
    report.row({ model: plan.model, ...row });
  }
  report.remark(
    `medians of ${counted(plan.rounds, "round")}; ms is a step of decode or a whole prompt; ` +
      "ratio is to the first row of its kind",
  );
  await report.finish();
  return 0;
}

/** For `--dry-run`; opens what would be timed, so that what is wrong with it shows. */
export async function describe(plan: ComparisonPlan | TimingPlan, io: Io): Promise<PlanText> {
  if (plan.kind === "compare") {
    const { compare, against } = plan;
    for (const path of [compare, against]) if (path !== "-") await readTimings(path, io);
    return { lines: [`compares ${compare === "-" ? "stdin" : compare} with ${against}`] };
  }
  using opened = new DisposableStack();
  const cells = await openCells(plan, opened, io);
  const bytes = memoryOf(cells);
  const rounds = `${counted(plan.warmup, "round")} to warm up and ${plan.rounds} timed`;
  const lines = [
    `times ${counted(cells.length, "row")} in turns, ${rounds}, in ${bytesText(bytes)}:`,
    ...cells.map(({ label, on }) =>
      on.introduced === "random" ? `${label}, random prefixes and aggregator` : label
    ),
  ];
  return { lines, results: { rows: cells.length, memory_bytes: bytes } };
}

/** Opens all models for `opened`, which closes them; nothing is compiled yet. */
async function openCells(plan: TimingPlan, opened: DisposableStack, io: Io): Promise<Cell[]> {
  const all: Opened[] = [];
  for (const model of plan.opened) {
    const session = opened.use(await openModel(model, io));
    const device = model.device === "auto" ? session.device : model.device!;
    for (const streams of plan.streams) {
      all.push({ ...streams, device, session: session.withStreams(streams.count, plan.seed) });
    }
  }
  return plan.work.flatMap((work) => all.map((on) => new Cell(on, work, plan.steps)));
}

/** Bytes of everything that is open at once; refused when the machine does not have them. */
function memoryOf(cells: readonly Cell[]): number {
  let all = 0;
  let here = 0;
  const seen = new Set<unknown>();
  for (const cell of cells) {
    const { weights, rest } = cell.plan();
    const bytes = rest + (seen.has(cell.on) ? 0 : weights);
    seen.add(cell.on);
    all += bytes;
    if (!cell.on.session.engine.device.traits.discreteMemory) here += bytes;
  }
  requireFreeMemory(
    here,
    `timing ${counted(cells.length, "row")} in turns`,
    "time fewer --streams, --quantize or --batch at once, since all are open together",
  );
  return all;
}

/** Runs all cells round by round and yields each when it has its last sample. */
async function* roundRobin(
  cells: readonly Cell[],
  { warmup, rounds }: TimingPlan,
  io: Io,
): AsyncGenerator<Cell> {
  const total = (warmup + rounds) * cells.length;
  using progress = new Progress(io, { label: "Timing", unit: "runs", total });
  let done = 0;
  for (let round = 0; round < warmup + rounds; round++) {
    for (const cell of cells) {
      const samples = await cell.run();
      if (round >= warmup) cell.samples.push(...samples);
      progress.update(++done, cell.label);
      if (round === warmup + rounds - 1) yield cell;
    }
  }
}

/** A model under a number of streams. */
interface Opened extends Streams {
  readonly session: Session;
  /** As it was asked for, `cuda:1` for instance; auto is resolved. */
  readonly device: string;
}

/**
 * One row in the making. It keeps its own cache, so that rows can take turns. Its samples are
 * milliseconds: of a step for decode, of a whole prompt for prefill.
 */
class Cell {
  readonly samples: number[] = [];
  #cache: KvCache | undefined;

  constructor(readonly on: Opened, readonly work: Work, readonly steps: number) {}

  /** Runs once; the first time also compiles. */
  async run(): Promise<number[]> {
    const { engine } = this.on.session;
    const { batch, context, prompt } = this.work;
    const cache = this.#cache ??= engine.createCache(batch, slotsOf(this.work, this.steps));
    return prompt === null
      ? await timeDecode(engine, cache, context, this.steps)
      : [await timePrefill(engine, cache, prompt)];
  }

  /** Bytes of weights, and of everything else it needs: an exact plan of its largest step. */
  plan(): { readonly weights: number; readonly rest: number } {
    const { engine } = this.on.session;
    const { totalBytes, sections } = engine.plan({
      batch: this.work.batch,
      tokens: Math.min(this.work.prompt ?? 1, engine.device.traits.prefillChunk),
      capacity: bucketFor(engine.device, slotsOf(this.work, this.steps)),
      selected: this.work.batch,
    });
    return { weights: sections.parameters, rest: totalBytes - sections.parameters };
  }

  /** Compute dtype, and type of the matrices: the same where they are exact. */
  get #types(): { readonly dtype: string; readonly weights: string } {
    const { engine, matrices } = this.on.session;
    const dtype = engine.device.cacheType;
    return { dtype, weights: matrices === "f32" ? dtype : matrices };
  }

  /** As lines about it call it: `decode, P = 4, batch 1, 512 cached, cpu f32`. */
  get label(): string {
    const { what, batch, context, prompt } = this.work;
    const { count, device } = this.on;
    const length = prompt === null ? `${context} cached` : `${prompt} tokens`;
    return `${what}, P = ${count}, batch ${batch}, ${length}, ${device} ${this.#types.weights}`;
  }

  /** The result; `first` is the median that ratios refer to, its own for the first of its kind. */
  row(first: number | undefined): Record<string, unknown> & { readonly median_ms: number } {
    const { median, spread } = centerOf(this.samples);
    const { work: { what, batch, context, prompt }, on } = this;
    const { device } = on.session.engine;
    return {
      what,
      streams: on.count,
      batch,
      context,
      prompt,
      device: on.device,
      ...this.#types,
      introduced: on.introduced,
      samples_ms: this.samples,
      median_ms: median,
      spread_ms: spread,
      tokens_per_s: batch * (prompt ?? 1) / median * 1000,
      ratio: median / (first ?? median),
      // Null where the number of threads is not ours to choose.
      threads: "threads" in device ? device.threads as number : null,
      version: VERSION,
      deno_version: Deno.version.deno,
      platform: `${Deno.build.os} ${Deno.build.arch}`,
    };
  }
}
