/**
 * Prints the tables of the study of a frozen model from `results`: `deno task frozen-report`.
 *
 * Arms are compared on the same documents: the difference of the losses per token, averaged over the
 * seeds that both arms have, with a 95% bootstrap interval over documents. Arms that have not ended are
 * left out.
 */
import { fileURLToPath } from "node:url";
import { RandomStream } from "../../../core/base/random.ts";
import { columnsOf, plainTable } from "../../../cli/output/table.ts";
import { ARMS, lossOf, type Outcome, type Total } from "./study.ts";

const RESULTS = fileURLToPath(new URL("results", import.meta.url));
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
  print(
    COMPARISONS.filter(([a, b]) => of(a).length > 0 && of(b).length > 0).map(([a, b, file]) => {
      const [difference, low, high] = bootstrapDifference(pairedDifferences(of(a), of(b), file));
      return {
        documents: file,
        arm: ARMS[a]!.label,
        against: ARMS[b]!.label,
        difference: signed(difference),
        "95%": `${signed(low)} to ${signed(high)}`,
      };
    }),
  );
}
