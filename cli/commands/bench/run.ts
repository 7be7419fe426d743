/**
 * Carries out `parscale bench`: opens everything, lets all rows take turns, writes them as they end.
 *
 * Rows are complete in the last round only, one after another. Comparing is in `compare.ts`.
 */
import type { PlanText } from "../../framework/command.ts";
import type { Checkpoint } from "../../../core/checkpoint/open.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { requireContext } from "../../input/context.ts";
import { requireFreeMemory } from "../../framework/memory.ts";
import { checkBlockSize } from "../../../core/session/quantization.ts";
import { findCheckpoint } from "../../input/open_model.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { startProgress } from "../../output/progress.ts";
import { openReport } from "../../output/report.ts";
import type { Column } from "../../output/table.ts";
import { bytesText, counted } from "../../output/units.ts";
import { Cell, slotsOf, type Work, workOf } from "./cells.ts";
import { compareTimings, pairOf, SCHEMA } from "./compare.ts";
import { Engines } from "./engines.ts";
import type { BenchValues } from "./flags.ts";

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
  values: BenchValues,
  io: Io,
  invocation: Invocation,
): Promise<number> {
  if (values.compare !== undefined || values.against !== undefined) {
    return await compareTimings(values, io, invocation);
  }
  using bench = await openBench(values, io);
  const devices = new Set(bench.cells.map(({ on }) => on.device));
  const isReadable = invocation.format === "table" || invocation.format === "md";
  using report = openReport(io, invocation, {
    schema: SCHEMA,
    device: [...devices].join(","),
    ...(isReadable && { columns: COLUMNS }),
  });
  const firsts = new Map<Work["what"], number>();
  for await (const cell of takeTurns(bench.cells, values, io)) {
    const { what } = cell.work;
    const row = cell.row(firsts.get(what));
    if (!firsts.has(what)) firsts.set(what, row.median_ms);
    report.row({ model: values.model, ...row });
  }
  report.remark(
    `medians of ${counted(values.rounds, "round")}; ms is a step of decode or a whole prompt; ` +
      "ratio is to the first row of its kind",
  );
  await report.finish();
  return 0;
}

/** For `--dry-run`; opens what would be timed, so that what is wrong with it shows. */
export async function describe(values: BenchValues, io: Io): Promise<PlanText> {
  if (values.compare !== undefined || values.against !== undefined) {
    const { compare, against } = pairOf(values);
    return { lines: [`compares ${compare === "-" ? "stdin" : compare} with ${against}`] };
  }
  using bench = await openBench(values, io);
  const rounds = `${counted(values.warmup, "round")} to warm up and ${values.rounds} timed`;
  const lines = [
    `times ${counted(bench.cells.length, "row")} in turns, ${rounds}, in ${
      bytesText(bench.bytes)
    }:`,
    ...bench.cells.map(({ label, on }) =>
      on.introduced === "random" ? `${label}, random prefixes and aggregator` : label
    ),
  ];
  return { lines, results: { rows: bench.cells.length, memory_bytes: bench.bytes } };
}

interface Bench extends Disposable {
  readonly cells: readonly Cell[];
  /** What all of them need together. */
  readonly bytes: number;
}

/** Opens engines and checks lengths and memory; nothing is compiled yet. */
async function openBench(values: BenchValues, io: Io): Promise<Bench> {
  const { model } = values;
  if (model === undefined) {
    throw new UsageError("`bench` needs `--model`", {
      hints: ["to compare timings that exist already, pass --compare and --against"],
    });
  }
  checkBlockSize(values.blockSize);
  const checkpoint = await findCheckpoint({ model, adapter: values.adapter }, io);
  const work = fittingWork(checkpoint, values);
  const engines = await Engines.open(checkpoint, values);
  try {
    const cells = work.flatMap((one) => engines.all.map((on) => new Cell(on, one, values)));
    const bytes = memoryOf(cells);
    return { cells, bytes, [Symbol.dispose]: () => engines[Symbol.dispose]() };
  } catch (error) {
    engines[Symbol.dispose]();
    throw error;
  }
}

/** The work asked for, in lengths that fit the model's context. */
function fittingWork({ config }: Checkpoint, values: BenchValues): Work[] {
  const { context, prompt, steps } = values;
  const limit = config.maxPositionEmbeddings;
  const work = workOf({
    ...values,
    context: context.length > 0 ? context : [Math.max(1, Math.min(512, limit - steps))],
    prompt: prompt.length > 0 ? prompt : [Math.min(512, limit)],
  });
  for (const one of work) {
    const [what, hint] = one.what === "decode"
      ? [`\`--context ${one.context}\` with ${counted(steps, "step")}`, "--context"]
      : [`\`--prompt ${one.prompt}\``, "--prompt"];
    requireContext(config, slotsOf(one, steps), what, `shorten ${hint}`);
  }
  return work;
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
    if (!cell.on.engine.device.traits.discreteMemory) here += bytes;
  }
  requireFreeMemory(
    here,
    `timing ${counted(cells.length, "row")} in turns`,
    "time fewer --streams, --quantize or --batch at once, since all are open together",
  );
  return all;
}

/** Runs all cells round by round and yields each when it has its last sample. */
async function* takeTurns(
  cells: readonly Cell[],
  { warmup, rounds }: BenchValues,
  io: Io,
): AsyncGenerator<Cell> {
  const total = (warmup + rounds) * cells.length;
  using progress = startProgress(io, { label: "Timing", unit: "runs", total });
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
