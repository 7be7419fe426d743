/**
 * Prints the tables of the study of a frozen model from `results`, and draws the differences:
 * `deno task frozen-report`.
 *
 * Arms are compared on the same documents: the difference of the losses per token, averaged over the
 * seeds that both arms have, with a 95% bootstrap interval over documents. Arms that have not ended are
 * left out.
 */
import { fileURLToPath } from "node:url";
import { RandomStream } from "../../../core/base/random.ts";
import { columnsOf, plainTable } from "../../../cli/output/table.ts";
import { COLORS, FRAME, renderSvg } from "../../../cli/output/vega.ts";
import { ARMS, lossOf, type Outcome, type Total } from "./study.ts";

const RESULTS = fileURLToPath(new URL("results", import.meta.url));
const FIGURE = fileURLToPath(new URL("results/differences.svg", import.meta.url));
const RESAMPLES = 10_000;

/** Compared arms and their held-out documents; the first comparison decides. */
export const COMPARISONS: readonly (readonly [arm: string, control: string, file: string])[] = [
  ["p4", "p1-307", "python"],
  ["p4", "p1", "python"],
  ["p4", "p1-lora", "python"],
  ["p4", "p1-compute", "python"],
  ["p4", "p4-fixed", "python"],
  ["p4", "p4-average", "python"],
  ["p4", "p2", "python"],
  ["p4", "untouched", "python"],
  ["p1", "untouched", "python"],
  ["p4", "untouched", "english"],
  ["p1", "untouched", "english"],
  ["p1-lora", "untouched", "english"],
];

/** A difference of losses in nats per token, and the ends of its 95% interval over documents. */
export function bootstrapDifference(differences: readonly Total[]): [number, number, number] {
  const random = new RandomStream(0), n = differences.length;
  const means = Float64Array.from(
    { length: RESAMPLES },
    () => lossOf(Array.from({ length: n }, () => differences[random.integer(n)]!)),
  ).sort();
  return [lossOf(differences), means[RESAMPLES * 0.025]!, means[RESAMPLES * 0.975]!];
}

/** Per document the difference of two arms, averaged over the seeds that both have. */
export function pairedDifferences(
  arm: readonly Outcome[],
  control: readonly Outcome[],
  file: string,
): Total[] {
  const pairs = arm.flatMap((outcome) => {
    // The untouched model has one outcome, for every seed.
    const other = control.find(({ seed, rate }) => rate === null || seed === outcome.seed);
    return other ? [[outcome.losses[file]!, other.losses[file]!] as const] : [];
  });
  return pairs[0]![0].map(({ tokens }, i) => ({
    tokens,
    nats: pairs.reduce((sum, [own, other]) => sum + own[i]!.nats - other[i]!.nats, 0) /
      pairs.length,
  }));
}

async function readOutcomes(): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for await (const { name } of Deno.readDir(RESULTS)) {
    if (!name.endsWith(".json") || name.startsWith("rate-")) continue;
    outcomes.push(JSON.parse(await Deno.readTextFile(`${RESULTS}/${name}`)));
  }
  return outcomes.sort((a, b) => a.seed - b.seed);
}

function print(rows: readonly Record<string, unknown>[]): void {
  console.log(plainTable(columnsOf(rows), rows));
}

/** Differences between trained arms with their intervals, in an SVG document. */
async function drawDifferences(
  differences: readonly (Record<"difference" | "low" | "high", number> & {
    readonly documents: string;
    readonly arm: string;
    readonly control: string;
  })[],
): Promise<string> {
  const nameOf = (arm: string) => ARMS[arm]!.label.replace(/ \(.*/, "");
  const values = differences.filter(({ control }) => control !== "untouched").map((row) => ({
    ...row,
    pair: `${nameOf(row.arm)} − ${nameOf(row.control)}`,
  }));
  const y = { field: "pair", type: "nominal", title: null, sort: null, axis: { labelLimit: 400 } };
  const x = { field: "difference", type: "quantitative", title: "nats per token, 95%" };
  return await renderSvg({
    ...FRAME,
    title: { text: "Loss on held-out Python", subtitle: "below zero: the first arm is better" },
    width: 420,
    data: { values },
    encoding: { y },
    layer: [
      { mark: { type: "rule", strokeDash: [4, 3] }, encoding: { x: { datum: 0 }, y: null } },
      {
        mark: { type: "rule", strokeWidth: 2, color: COLORS[0] },
        encoding: { x: { ...x, field: "low" }, x2: { field: "high" } },
      },
      { mark: { type: "point", filled: true, size: 70, color: COLORS[0] }, encoding: { x } },
    ],
  });
}

if (import.meta.main) {
  const outcomes = await readOutcomes();
  const of = (arm: string) => outcomes.filter((outcome) => outcome.arm === arm);
  const signed = (x: number) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(4);
  print(
    Object.entries(ARMS).filter(([name]) => of(name).length > 0).map(([name, { label }]) => ({
      arm: label,
      trained: of(name)[0]!.trainedParams,
      rate: of(name)[0]!.rate,
      python: of(name).map(({ losses }) => lossOf(losses.python!).toFixed(4)).join(" "),
      english: of(name).map(({ losses }) => lossOf(losses.english!).toFixed(4)).join(" "),
    })),
  );
  const differences = COMPARISONS
    .filter(([a, b]) => of(a).length > 0 && of(b).length > 0)
    .map(([arm, control, documents]) => {
      const paired = pairedDifferences(of(arm), of(control), documents);
      const [difference, low, high] = bootstrapDifference(paired);
      return { documents, arm, control, difference, low, high };
    });
  print(differences.map(({ documents, arm, control, difference, low, high }) => ({
    documents,
    arm: ARMS[arm]!.label,
    against: ARMS[control]!.label,
    difference: signed(difference),
    "95%": `${signed(low)} to ${signed(high)}`,
  })));
  await Deno.writeTextFile(FIGURE, await drawDifferences(differences));
}
