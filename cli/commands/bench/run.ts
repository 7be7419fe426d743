/**
 * Carries out `parscale bench`: opens everything, lets all rows take turns, writes them as they end.
 *
 * Rows are complete in the last round only, one after another.
 */
import type { Context } from "../../framework/context.ts";
import { requireFreeMemory } from "../../input/limits.ts";
import { openModel } from "../../input/open_model.ts";
import type { Io } from "../../output/io.ts";
import { Progress } from "../../output/progress.ts";
import { Report } from "../../output/report.ts";
import type { Column } from "../../output/table.ts";
import { bytesText, counted } from "../../output/units.ts";
import { Cell, type Opened } from "./cell.ts";
import { type BenchValues, planTiming, type TimingPlan, type Work } from "./plan.ts";

const COLUMNS: readonly Column[] = [
  { key: "what" },
  { key: "train_params", title: "trains" },
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

/** Runs the command. */
export async function run(values: BenchValues, ctx: Context): Promise<void> {
  const { io, invocation } = ctx;
  const plan = await planTiming(values, io);
  using opened = new DisposableStack();
  const cells = await openCells(plan, values, opened, io);
  const bytes = memoryOf(cells);
  ctx.begin({
    lines: [
      `would time ${counted(cells.length, "row")} in ${bytesText(bytes)}:`,
      ...cells.map(({ label }) => label),
    ],
    results: { rows: cells.length, memory_bytes: bytes },
  });
  const devices = new Set(cells.map(({ on }) => on.device));
  using report = new Report(io, invocation, {
    schema: "parscale.bench/1",
    device: [...devices].join(","),
    // Only tables with rows of training name what is trained.
    shown: COLUMNS.filter(({ key }) =>
      key !== "train_params" || plan.work.some(({ what }) => what === "train")
    ),
  });
  const firsts = new Map<Work["what"], number>();
  for await (const cell of roundRobin(cells, values, io)) {
    const { what } = cell.work;
    const row = cell.row(firsts.get(what));
    if (!firsts.has(what)) firsts.set(what, row.median_ms);
    report.row({ model: values.model, ...row });
  }
  report.remark(
    `medians of ${counted(values.rounds, "round")}; ms is a step of decode or of training, or a ` +
      "whole prompt; ratio is to the first row of its kind",
  );
  await report.finish();
}

/** Opens all models for `opened`, which closes them; nothing is compiled yet. */
async function openCells(
  plan: TimingPlan,
  values: BenchValues,
  opened: DisposableStack,
  io: Io,
): Promise<Cell[]> {
  const all: Opened[] = [];
  for (const model of plan.opened) {
    const session = opened.use(await openModel(model, io));
    const device = model.device === "auto" ? session.device : model.device!;
    for (const streams of plan.streams) {
      const { memoryLimit } = model, under = session.withStreams(streams.count, values.seed);
      all.push({ ...streams, device, memoryLimit, session: under });
    }
  }
  return plan.work.flatMap((work) => all.map((on) => new Cell(on, work, values)));
}

/** Bytes of everything that is open at once; refused when the machine does not have them. */
function memoryOf(cells: readonly Cell[]): number {
  let all = 0;
  let here = 0;
  const seen = new Set<unknown>();
  for (const cell of cells) {
    const { sharedBy, shared, own } = cell.timed.plan();
    const bytes = own + (seen.has(sharedBy) ? 0 : shared);
    seen.add(sharedBy);
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
  { warmup, rounds }: BenchValues,
  io: Io,
): AsyncGenerator<Cell> {
  const total = (warmup + rounds) * cells.length;
  using progress = new Progress(io, { label: "Timing", unit: "runs", total });
  let done = 0;
  for (let round = 0; round < warmup + rounds; round++) {
    for (const cell of cells) {
      const samples = await cell.timed.run();
      if (round >= warmup) cell.samples.push(...samples);
      progress.update(++done, cell.label);
      if (round === warmup + rounds - 1) yield cell;
    }
  }
}
