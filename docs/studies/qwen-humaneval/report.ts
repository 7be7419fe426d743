/** Prints the tables of the study of Qwen on HumanEval from `results`: `deno task qwen-report`. */
import { columnsOf, plainTable } from "../../../cli/output/table.ts";
import { pairedDifference } from "../../../core/eval/harness/paired.ts";
import { bootstrapDifference } from "../frozen-smollm2/report.ts";
import { lossOf, type Total } from "../frozen-smollm2/study.ts";
import { LABELS, type Passes, RESULTS } from "./study.ts";

/** Compared methods; the first two comparisons are those of criteria 1 and 2. */
const COMPARISONS: readonly (readonly [method: string, control: string])[] = [
  ["parscale-3", "parscale-2"],
  ["parscale-3", "beams-4"],
  ...Object.keys(LABELS).slice(1).map((method) => [method, "p1"] as const),
];

/** `difference low to high`, with a number of digits. */
export function interval(digits: number, [difference, low, high]: readonly number[]): string {
  const [d, a, b] = [difference!, low!, high!].map((x) => x.toFixed(digits));
  return `${d} (${a} to ${b})`;
}

function lossRows(losses: Readonly<Record<string, readonly Total[]>>) {
  return Object.entries(losses).map(([method, documents]) => {
    const change = documents.map(({ tokens, nats }, i) => ({
      tokens,
      nats: nats - losses.p1![i]!.nats,
    }));
    const difference = method === "p1" ? "" : interval(4, bootstrapDifference(change));
    return { method: LABELS[method], loss: lossOf(documents).toFixed(4), difference };
  });
}

/** Share of the problems that passed. */
export function share(passed: readonly number[]): string {
  return (passed.reduce((sum, x) => sum + x, 0) / passed.length).toFixed(3);
}

function passRows(passes: Readonly<Record<string, Passes>>) {
  return Object.entries(passes).map(([method, { base, plus }]) => ({
    method: LABELS[method],
    humaneval: share(base),
    humaneval_plus: share(plus),
  }));
}

function comparisonRows(passes: Readonly<Record<string, Passes>>) {
  return COMPARISONS.map(([method, control]) => {
    const by = (tests: keyof Passes) => {
      const { difference, low, high } = pairedDifference(
        passes[method]![tests],
        passes[control]![tests],
      )!;
      return interval(3, [difference, low, high]);
    };
    const names = { method: LABELS[method], minus: LABELS[control] };
    return { ...names, humaneval: by("base"), humaneval_plus: by("plus") };
  });
}

async function read<T>(name: string): Promise<Record<string, T>> {
  return JSON.parse(await Deno.readTextFile(`${RESULTS}/${name}.json`));
}

if (import.meta.main) {
  const passes = await read<Passes>("passes");
  const tables = [
    lossRows(await read<Total[]>("losses")),
    passRows(passes),
    comparisonRows(passes),
  ];
  for (const rows of tables) console.log(plainTable(columnsOf(rows), rows));
}
