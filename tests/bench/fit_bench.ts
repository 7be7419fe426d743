/** Fits of the paper's 24 losses from the whole grid of starts; the budget is 2 s each. */
import { DATA_SETS } from "../../core/analysis/cost_family.ts";
import { bootstrap, fitLaw } from "../../core/analysis/fit.ts";

const { observations, laws } = DATA_SETS["stack-v2-python"];

for (const kind of ["log", "theoretical"] as const) {
  Deno.bench({
    name: `${kind}, all starts`,
    group: "fit",
    n: 5,
    warmup: 1,
    fn: () => void fitLaw(observations, kind),
  });
}
Deno.bench({
  name: "bootstrap, 500 refits",
  group: "refits",
  n: 5,
  warmup: 1,
  fn: () => void bootstrap(observations, laws.log, { resamples: 500, seed: 0 }),
});
