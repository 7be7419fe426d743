/**
 * All starts of the paper's four fits, beside SciPy's L-BFGS-B with numeric gradients, the
 * optimiser the paper used, in turn on one core.
 *
 *   deno run -A tests/bench/fit_scipy.ts --python PYTHON [--rounds 3]
 *
 * PYTHON has scipy. Both start from the same 300 points; SciPy stops by its own rule, far from the
 * optimum for most of them, and ours at the optimum for all.
 */
import { parseArgs } from "@std/cli/parse-args";
import { DATA_SETS } from "../../core/analysis/cost_family.ts";
import { fitLaw } from "../../core/analysis/fit.ts";

const flags = parseArgs(Deno.args, { string: ["python", "rounds"], default: { rounds: "3" } });
const CORPORA = ["stack-v2-python", "pile"] as const;
const LAWS = ["log", "theoretical"] as const;

const SCRIPT = `
import itertools, json, math, sys, time
import numpy as np
from scipy.optimize import minimize
rows = json.load(sys.stdin)
N, P, L = (np.array([row[key] for row in rows], float) for key in ("n", "p", "loss"))

def objective(x, law):
    E, A, alpha, k = x
    if law == "log":
        predicted = E + (A * 1e9 / (N * (k * np.log(P) + 1))) ** alpha
    else:
        predicted = E + (A * 1e9 / N) ** alpha * ((P - 1) * k + 1) / P
    e = np.abs(np.log(predicted) - np.log(L))
    return np.where(e <= 1e-3, e * e / 2, 1e-3 * (e - 5e-4)).sum()

starts = itertools.product(
    [math.exp(v) for v in (-1, -0.5, 0)], [math.exp(v) for v in (-4, -2, 0, 2, 4)],
    (0, 0.5, 1, 1.5, 2), (0.2, 0.4, 0.6, 0.8))
starts = list(starts)
for law in ("log", "theoretical"):
    began = time.perf_counter()
    found = [minimize(objective, s, (law,), "L-BFGS-B", bounds=[(1e-8, None)] * 4).fun for s in starts]
    print(json.dumps({"law": law, "seconds": time.perf_counter() - began, "best": float(min(found))}))
`;
import { medianOf } from "../../core/base/statistics.ts";

interface Timed {
  readonly law: string;
  readonly seconds: number;
  readonly best: number;
}

async function scipy(python: string, observations: unknown): Promise<Timed[]> {
  const child = new Deno.Command(python, {
    args: ["-W", "ignore", "-c", SCRIPT],
    env: { OMP_NUM_THREADS: "1", OPENBLAS_NUM_THREADS: "1" },
    stdin: "piped",
    stdout: "piped",
  }).spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(JSON.stringify(observations)));
  await writer.close();
  const { stdout } = await child.output();
  return new TextDecoder().decode(stdout).trim().split("\n").map((line) => JSON.parse(line));
}

const rows = new Map<string, { ours: number[]; theirs: number[]; best: [number, number] }>();
for (let round = 0; round < Number(flags.rounds); round++) {
  for (const corpus of CORPORA) {
    const { observations } = DATA_SETS[corpus];
    const rowOf = (law: string) => {
      const name = `${corpus}, ${law}`;
      return rows.getOrInsertComputed(name, () => ({ ours: [], theirs: [], best: [NaN, NaN] }));
    };
    for (const law of LAWS) {
      const row = rowOf(law);
      const began = performance.now();
      row.best[0] = fitLaw(observations, law).huberLoss;
      row.ours.push((performance.now() - began) / 1000);
    }
    for (
      const { law, seconds, best } of flags.python ? await scipy(flags.python, observations) : []
    ) {
      rowOf(law).theirs.push(seconds);
      rowOf(law).best[1] = best;
    }
  }
}
let [mine, theirs] = [0, 0];
for (const [name, row] of rows) {
  const own = medianOf(row.ours), other = row.theirs.length > 0 ? medianOf(row.theirs) : NaN;
  mine += own;
  theirs += other;
  console.log(
    `${name}: ours ${own.toFixed(3)} s to ${row.best[0].toExponential(6)}, SciPy ` +
      `${other.toFixed(2)} s to ${row.best[1].toExponential(6)}, ${(other / own).toFixed(0)}x`,
  );
}
console.log(
  `all four: ${mine.toFixed(2)} s, SciPy ${theirs.toFixed(1)} s, ${(theirs / mine).toFixed(0)}x`,
);
