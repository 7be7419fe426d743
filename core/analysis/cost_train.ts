/**
 * Memory and time of a training step, from the same roofline as `cost_exact.ts`.
 *
 * m rows of s tokens at a time, r = m P s rows through the layers, b / m micro-batches per step.
 * N is all parameters, N' those that learn.
 *
 *   memory      N w, and 4 N' more for a float32 copy where weights are narrower; gradients 4 N';
 *               two moments 8 N'; activations A
 *   A, kept     L r a E + tail, E elements that the backward pass reads per row and layer:
 *               all learn  4 h + (q + 2 v) d + q d + 3 f    inputs of every product and norm
 *               introduced 2 h + (q + 2 v) d + q d + 2 f    what derivatives of x alone need
 *   A, redone   L r a h + r a E + tail: inputs of layers, and one layer at a time
 *   delta nets  2 W + 6 H Dv in place of attention's widths, and once 22 H Dv for their chunks; redone
 *               the plans of `core/train` are up to twice as much
 *   tail        logits and their derivative, 8 m s V, and a m s (P + 1) h
 *   time        b / m (forward (1 + x) + one forward of the layers if redone) + optimiser
 *   x           2 when all learn, 1 for introduced: no weight gradients of the backbone
 *   optimiser   reads w, g, m, v and writes w, m, v: 28 N' / B
 *
 * Attention keeps no scores. There are no goldens for these formulas: only generation is checked
 * against the official script. Memory is within ten percent of the plans of `core/train` for 130
 * million parameters; real trainers also keep copies that are left out here.
 */
import { type CostQuestion, countShape, deltaWidths, lettersOf, prefixRows } from "./cost.ts";
import { attentionS, layersFlops, layersLinearS, statesS, tailFlops, tailS } from "./cost_exact.ts";

/** Sizes of a step. `batch`, `input` and `output` of the workload are not read. */
export interface TrainQuestion extends CostQuestion {
  /** b: rows per step */
  readonly rows: number;
  /** m: rows at a time; divides the rows */
  readonly microBatch: number;
  /** s */
  readonly seqLen: number;
  readonly params: "all" | "introduced";
  readonly recompute: boolean;
}

/**
 * Memory and time of one step, in the order of documents; `backwardS` has the repeated forward pass,
 * if there is one.
 */
export function trainCost(question: TrainQuestion) {
  const { shape, work, bytes, rates, recompute } = question;
  const counts = countShape(shape, work.streams, work.prefixTokens);
  const all = question.params === "all";
  const trainedParams = all ? counts.total : counts.prefix + counts.aggregator;
  const copy = bytes.weight < 4 ? 4 * trainedParams : 0;
  const weightBytes = counts.total * bytes.weight + copy;
  const gradientBytes = 4 * trainedParams;
  const momentBytes = 8 * trainedParams;
  const activationBytes = activations(question);

  const passes = question.rows / question.microBatch;
  const backward = all ? 2 : 1;
  const { layersS, restS, layersFlops, restFlops } = forward(question);
  const forwardS = passes * (layersS + restS);
  const backwardS = backward * forwardS + (recompute ? passes * layersS : 0);
  const optimizerS = 28 * trainedParams / rates.bytes;
  const stepS = forwardS + backwardS + optimizerS;
  return {
    trainedParams,
    memoryBytes: weightBytes + gradientBytes + momentBytes + activationBytes,
    stepS,
    weightBytes,
    gradientBytes,
    momentBytes,
    activationBytes,
    forwardS,
    backwardS,
    optimizerS,
    tokensPerS: question.rows * question.seqLen / stepS,
    flops: passes *
      ((1 + backward) * (layersFlops + restFlops) + (recompute ? layersFlops : 0)),
  };
}

function activations(question: TrainQuestion): number {
  const { shape, work, bytes, microBatch: m, seqLen: s } = question;
  const { h, f, L, q, v, d, V, g, A, N } = lettersOf(shape);
  const P = work.streams;
  const r = m * P * s;
  const [hidden, mlp] = question.params === "all" ? [4, 3] : [2, 2];
  const common = hidden * h + mlp * f;
  const attention = common + (g + q + 2 * v) * d;
  const { conv, output } = deltaWidths(shape);
  const delta = N > 0 ? common + 2 * conv + 6 * output : 0;
  const kept = question.recompute ? L * h + Math.max(attention, delta) : A * attention + N * delta;
  // The chunks of one delta net, which its backward pass computes again.
  const layers = kept + 22 * output;
  const tail = 8 * m * s * V + bytes.activation * m * s * (P + 1) * h;
  return r * bytes.activation * layers + tail;
}

/** One forward pass over a micro-batch: its layers, and what stands around them. */
function forward(question: TrainQuestion) {
  const { shape, work, bytes, rates, microBatch: m, seqLen: s } = question;
  const { h, q, v, d, A } = lettersOf(shape);
  const n = m * work.streams, T = prefixRows(work);
  const G = 4 * n * q * d * (s * T + s * (s + 1) / 2);
  const C = 2 * v * d * bytes.activation * (n * s + work.streams * T);
  return {
    layersS: layersLinearS(question, n * s) + statesS(question, n, s) +
      A * attentionS(question, n * s, G, C),
    restS: m * s * h * bytes.weight / rates.bytes + tailS(question, n * s, m * s),
    layersFlops: layersFlops(question) * n * s + A * G,
    restFlops: tailFlops(question) * m * s,
  };
}
