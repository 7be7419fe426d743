/** The logarithm of the sum of exponentials over a vocabulary, beside `Math.exp`: `deno bench tests/bench`. */
import { logSumExp } from "../../core/generate/logprobs.ts";
import { RandomStream } from "../../core/base/random.ts";

const random = new RandomStream(1, "logits");
const logits = Float32Array.from({ length: 151_936 }, () => 30 * (random.uniform() - 0.5));

Deno.bench({
  name: "Math.exp",
  group: "log-sum-exp",
  baseline: true,
  fn: () => {
    let largest = -Infinity, sum = 0;
    for (let id = 0; id < logits.length; id++) if (logits[id]! > largest) largest = logits[id]!;
    for (let id = 0; id < logits.length; id++) sum += Math.exp(logits[id]! - largest);
    return void (largest + Math.log(sum));
  },
});

Deno.bench({ name: "table", group: "log-sum-exp", fn: () => void logSumExp(logits, "bench") });
