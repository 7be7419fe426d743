/** Carries out `parscale cost`: rows of costs, a figure or the list of hardware. */
import {
  type CostQuestion,
  type CostShape,
  countShape,
  meanCost,
  type Workload,
} from "../../../core/analysis/cost.ts";
import { exactCost } from "../../../core/analysis/cost_exact.ts";
import {
  DATA_SETS,
  memberOf,
  type ModelSize,
  PAPER_FAMILY,
  widerSizes,
} from "../../../core/analysis/cost_family.ts";
import { paperCost, printedLine } from "../../../core/analysis/cost_paper.ts";
import { type CostDevice, DEVICES } from "../../../core/analysis/devices.ts";
import { predictLoss } from "../../../core/analysis/law.ts";
import { DataError } from "../../../core/base/errors.ts";
import type { Context } from "../../framework/context.ts";
import { type Invocation, snakeKeys } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { reportRows } from "../../output/report.ts";
import { checkFigure, openFigure } from "../../output/sink.ts";
import type { Column, Row } from "../../output/table.ts";
import { renderSvg } from "../../output/vega.ts";
import {
  type CostValues,
  findHardware,
  openModel,
  type Setting,
  settingOf,
  THIS_MACHINE,
  workOf,
} from "./setting.ts";
import { figureSpec, gib, headline, inputsOf, ms, type Point, WORK_COLUMNS } from "./show.ts";

export { check } from "./setting.ts";

/** Runs the command. */
export async function run(values: CostValues, ctx: Context): Promise<void> {
  const { io, invocation } = ctx;
  if (values.arguments.length > 0) {
    ctx.begin();
    return await listHardware(io, invocation);
  }
  checkFigure(values.svg, invocation);
  const model = await openModel(values, io);
  const work = workOf(values, model);
  const known = values.hardware === THIS_MACHINE ? undefined : findHardware(values);
  const isFigure = values.svg !== undefined;
  if (ctx.isDryRun && isFigure && known) {
    pointsOf(settingOf(values, model, work, known)); // shows whether they can be drawn
  }
  ctx.begin();
  // Loads the engine, which prediction does not need.
  const measured = async () => (await import("./calibrate.ts")).calibrate(values, io);
  const setting = settingOf(values, model, work, known ?? await measured());
  if (isFigure) return await drawFigure(setting, io, invocation);
  await estimate(setting, io, invocation);
}

/** One question in a setting. */
function questionOf(
  { rates, widths, values: { prefixCache, stepOverhead } }: Setting,
  shape: CostShape,
  work: Workload,
): CostQuestion {
  const { weight, activation, cache } = widths;
  return {
    shape,
    work,
    rates,
    bytes: { weight: weight / 8, activation: activation / 8, cache: cache / 8 },
    copiesPrefix: prefixCache === "copied",
    stepOverheadS: stepOverhead,
  };
}

async function listHardware(io: Io, invocation: Invocation): Promise<void> {
  const own = { name: THIS_MACHINE, origin: "measured", remark: "when it is asked for" };
  const rows = [
    ...DEVICES.map(({ name, capacityGb, bandwidthGbS, tflops, origin, remark }) => ({
      name,
      capacity_gib: capacityGb,
      bandwidth_gb_s: bandwidthGbS,
      tflops,
      origin,
      remark,
    })),
    own,
  ];
  await reportRows(io, invocation, { schema: "parscale.hardware/1" }, rows);
}

/** Writes a row per configuration. */
async function estimate(setting: Setting, io: Io, invocation: Invocation): Promise<void> {
  const { on, values: { method, hardware } } = setting;
  const options = { schema: "parscale.cost/3", shown: columnsOf(method) };
  const inputs = inputsOf(setting);
  const needed: number[] = [];
  const rows = function* () {
    for (const work of workloadsOf(setting)) {
      const row = rowOf(setting, work);
      const bytes = row.memory_bytes as number;
      needed.push(bytes);
      const fits = on.capacityGb === undefined ? null : bytes <= on.capacityGb * 2 ** 30;
      yield { ...inputs, ...row, fits };
    }
  };
  const own = hardware === undefined ? `; --hardware ${THIS_MACHINE} measures yours` : "";
  const remark = () => `${headline(setting)}; sizes in GiB, ideal times in ms${own}`;
  await reportRows(io, invocation, options, rows(), remark);
  warnAboutCapacity(needed, on, io);
}

function warnAboutCapacity(needed: number[], { name, capacityGb = Infinity }: CostDevice, io: Io) {
  const over = needed.filter((bytes) => bytes > capacityGb * 2 ** 30);
  if (over.length === 0) return;
  const most = over.reduce((most, bytes) => Math.max(most, bytes));
  const which = needed.length === 1
    ? "the configuration needs"
    : `${over.length} of ${needed.length} configurations need`;
  io.warn(
    `${which} up to ${(most / 2 ** 30).toFixed(1)} GiB, more than the ${capacityGb} GiB of ${name}`,
    "choose larger --hardware, fewer sequences or fewer bits; -q hides this",
  );
}

/** Every workload of generation, one by one, since ranges multiply. */
function* workloadsOf(
  { streams, prefixTokens, lengths, values: { batch } }: Setting,
): Generator<Workload> {
  for (const P of streams) {
    for (const b of batch) {
      for (const pair of lengths) yield { streams: P, prefixTokens, batch: b, ...pair };
    }
  }
}

/** The workload, its cost and the parts. */
function rowOf(setting: Setting, work: Workload): Row {
  const question = questionOf(setting, setting.model.shape, work);
  if (setting.values.method === "exact") return snakeKeys({ ...work, ...exactCost(question) });
  const cost = paperCost(question);
  return snakeKeys({ ...work, ...cost, printed: printedLine(cost) });
}

function columnsOf(method: CostValues["method"]): (Column | string)[] {
  const isPaper = method === "paper";
  return [
    ...WORK_COLUMNS,
    ...(isPaper ? [] : [gib("memory", "memory")]), // it is in the printed line
    gib("weight", "weights"),
    gib("kv_cache", "cache"),
    gib("activation", "activations"),
    ...(isPaper ? [] : [ms("latency", "latency")]),
    ms("prefill", "prefill"),
    isPaper ? ms("decode_step", "step") : ms("decode", "decode"),
    FITS,
    ...(isPaper ? ["printed"] : []),
  ];
}

const FITS = { key: "fits", show: (fits: unknown) => fits ? "yes" : "no" };

const FIGURE_COLUMNS = [
  "way",
  "model",
  "streams",
  { key: "loss", digits: 4 },
  gib("memory", "memory GiB"),
  { key: "latency_s", title: "latency s" },
];

/** Draws the figure and reports its points. */
async function drawFigure(setting: Setting, io: Io, invocation: Invocation): Promise<void> {
  const { lengths, values: { batch, svg } } = setting;
  using figure = openFigure(io, svg, invocation.overwrite);
  const points = pointsOf(setting);
  const tokens = new Set(lengths.map(({ input, output }) => `${input}+${output}`));
  const means = `mean over batch ${batch.join(", ")} and ${[...tokens].join(", ")} tokens`;
  const [title, ...more] = headline(setting).split(": ");
  figure!.write(await renderSvg(figureSpec(points, title!, [...more, means])));
  const options = { schema: "parscale.cost-figure/2", shown: FIGURE_COLUMNS };
  const inputs = inputsOf(setting);
  const rows = points.map((point) => ({ ...inputs, ...snakeKeys(point) }));
  const remark = () => `${headline(setting)}\n${means}`;
  await reportRows(io, invocation, options, rows, remark);
}

/** More streams and more parameters, two ways to a lower loss; costs are means over all workloads. */
function pointsOf(setting: Setting): Point[] {
  const { model: { name, shape }, prefixTokens, values: { method, match } } = setting;
  const member = memberOf(shape);
  if (member === undefined && match === "observed") {
    throw new DataError(
      "no observed losses for this model: the paper trained " +
        PAPER_FAMILY.map(({ name }) => name).join(", "),
      { hints: ["pass --match law, which predicts the losses of any model"] },
    );
  }
  const compute = method === "paper" ? paperCost : exactCost;
  const sizes = member === undefined ? widerSizes(shape) : PAPER_FAMILY;
  const base: ModelSize = member ?? { ...sizes[0]!, name: name ?? "model" };
  const point = (way: Point["way"], size: ModelSize, streams: number): Point => {
    const works = workloadsOf({ ...setting, streams: [streams] });
    const costs = [...works].map((work) => compute(questionOf(setting, size.shape, work)));
    const loss = lossOf(size, streams, prefixTokens, match);
    return { way, model: size.name, streams, loss, ...meanCost(costs) };
  };
  return [
    ...sizes.map((size) => point("more parameters", size, 1)),
    ...setting.streams.map((streams) => point("more streams", base, streams)),
  ];
}

function lossOf(
  { shape, losses }: ModelSize,
  streams: number,
  prefixTokens: number,
  match: CostValues["match"],
): number {
  if (match === "law") {
    const { log } = DATA_SETS["stack-v2-python"].laws;
    return predictLoss(log, countShape(shape, streams, prefixTokens).nonEmbedding, streams);
  }
  const observed = losses.get(streams);
  if (observed !== undefined) return observed;
  throw new DataError(
    `no observed loss for ${streams} streams: the paper trained ${[...losses.keys()].join(", ")}`,
    { hints: ["pass --match law, which predicts the loss of any number of streams"] },
  );
}
