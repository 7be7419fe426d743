/**
 * All starts of both laws on the paper's 24 losses, beside SciPy's L-BFGS-B with numeric gradients, the
 * optimiser the paper used, in turn on one core.
 *
 *   deno run -A tests/bench/fit_scipy.ts --python PYTHON [--rounds 3]
 *
 * PYTHON has scipy. Both start from the same 300 points; SciPy stops by its own rule, far from the
 * optimum for most of them, and ours at the optimum for all.
 */
import { parseArgs } from "@std/cli/parse-args";
import { DATA_SETS } from "../../cli/fit/data_sets.ts";
import { fitLaw } from "../../core/analysis/fit.ts";

const flags = parseArgs(Deno.args, { string: ["python", "rounds"], default: { rounds: "3" } });
const { observations } = DATA_SETS["stack-v2-python"];

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

async function scipy(python: string): Promise<{ law: string; seconds: number; best: number }[]> {
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

const median = (values: readonly number[]) =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
const ours: Record<string, number[]> = { log: [], theoretical: [] };
const theirs: Record<string, number[]> = { log: [], theoretical: [] };
const best: Record<string, [number, number]> = {};
for (let round = 0; round < Number(flags.rounds); round++) {
  for (const law of ["log", "theoretical"] as const) {
    const began = performance.now();
    const { huberLoss } = fitLaw(observations, law);
    ours[law]!.push((performance.now() - began) / 1000);
    best[law] = [huberLoss, NaN];
  }
  for (const { law, seconds, best: found } of flags.python ? await scipy(flags.python) : []) {
    theirs[law]!.push(seconds);
    best[law]![1] = found;
  }
}
for (const law of ["log", "theoretical"]) {
  const [mine, other] = [median(ours[law]!), median(theirs[law]!)];
  console.log(
    `${law}: ours ${mine.toFixed(3)} s, objective ${best[law]![0].toExponential(6)}; ` +
      (Number.isFinite(other)
        ? `SciPy ${other.toFixed(2)} s, ${best[law]![1].toExponential(6)}; ${
          (other / mine).toFixed(0)
        }x`
        : "SciPy not given"),
  );
}
