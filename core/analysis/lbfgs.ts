/**
 * Limited-memory BFGS with a line search that meets the strong Wolfe conditions (Nocedal and Wright
 * 2006, algorithms 7.4, 3.5 and 3.6), for a few variables and exact gradients.
 *
 * It stops when a step gains nothing any more, relative to the value: the objective it was made for
 * has a long flat valley, where a threshold on the gradient or on one step stops too early.
 */

/** Returns the value at x and writes the gradient. */
export type Objective = (x: Float64Array, gradient: Float64Array) => number;

/** End of a descent. */
export interface Minimum {
  readonly x: Float64Array;
  readonly value: number;
  /** Largest absolute entry of the gradient there. */
  readonly slope: number;
}

/** Pairs of steps and gradient changes that are remembered. */
const PAIRS = 10;
/** Wolfe constants. */
const DECREASE = 1e-4, CURVATURE = 0.9;
const MAX_ITERATIONS = 2000, MAX_STEP_TRIES = 40;
/** Promised gain, relative to the value, below which a descent ends. */
const LEAST_GAIN = 1e-17;
/** Steps without any gain after which a minimum is taken for reached. */
const PATIENCE = 3;

/** Descends from a point. */
export function minimize(objective: Objective, start: ArrayLike<number>): Minimum {
  const n = start.length;
  let x = Float64Array.from(start);
  let gradient = new Float64Array(n);
  let value = objective(x, gradient);
  const steps: Float64Array[] = [], changes: Float64Array[] = [];
  let idle = 0;
  for (let i = 0; i < MAX_ITERATIONS && idle < PATIENCE; i++) {
    let direction = twoLoop(gradient, steps, changes);
    if (dot(direction, gradient) >= 0) { // lost in rounding: start over from the plain gradient
      steps.length = changes.length = 0;
      direction = gradient.map((g) => -g);
    }
    // What a whole step promises is less than the value's own rounding: no search can find it.
    if (steps.length > 0 && -dot(direction, gradient) <= LEAST_GAIN * Math.abs(value)) break;
    const first = steps.length > 0 ? 1 : Math.min(1, 1 / norm(gradient));
    const found = lineSearch(objective, { x, value, gradient, direction }, first);
    if (!found) {
      if (steps.length === 0) break;
      steps.length = changes.length = 0;
      continue;
    }
    const step = found.x.map((xi, i) => xi - x[i]!);
    const change = found.gradient.map((gi, i) => gi - gradient[i]!);
    if (dot(step, change) > 1e-300) {
      steps.push(step);
      changes.push(change);
      if (steps.length > PAIRS) {
        steps.shift();
        changes.shift();
      }
    }
    idle = value - found.value <= 1e-15 * Math.abs(value) ? idle + 1 : 0;
    ({ x, value, gradient } = found);
  }
  return { x, value, slope: Math.max(...gradient.map(Math.abs)) };
}

/** Minus the inverse Hessian, as the pairs tell it, times the gradient. */
function twoLoop(
  gradient: Float64Array,
  steps: readonly Float64Array[],
  changes: readonly Float64Array[],
): Float64Array<ArrayBuffer> {
  const q = Float64Array.from(gradient);
  const weights = steps.map((step, i) => 1 / dot(step, changes[i]!));
  const factors = new Float64Array(steps.length);
  for (let i = steps.length - 1; i >= 0; i--) {
    factors[i] = weights[i]! * dot(steps[i]!, q);
    addScaled(q, -factors[i]!, changes[i]!);
  }
  const last = steps.length - 1;
  if (last >= 0) {
    const scale = dot(steps[last]!, changes[last]!) / dot(changes[last]!, changes[last]!);
    for (let i = 0; i < q.length; i++) q[i]! *= scale;
  }
  for (let i = 0; i < steps.length; i++) {
    const beta = weights[i]! * dot(changes[i]!, q);
    addScaled(q, factors[i]! - beta, steps[i]!);
  }
  return q.map((qi) => -qi);
}

interface Point {
  readonly x: Float64Array<ArrayBuffer>;
  readonly value: number;
  readonly gradient: Float64Array<ArrayBuffer>;
}

/** One point on the line: its place, value and slope along the line. */
interface Trial extends Point {
  readonly t: number;
  readonly slope: number;
}

/** A point along `direction` that meets both Wolfe conditions; undefined when none is found. */
function lineSearch(
  objective: Objective,
  from: Point & { readonly direction: Float64Array },
  first: number,
): Point | undefined {
  const at = (t: number): Trial => {
    const x = from.x.map((xi, i) => xi + t * from.direction[i]!);
    const gradient = new Float64Array(x.length);
    const value = objective(x, gradient);
    return { t, x, value, gradient, slope: dot(gradient, from.direction) };
  };
  const start: Trial = { ...from, t: 0, slope: dot(from.gradient, from.direction) };
  const isLower = (trial: Trial) =>
    trial.value <= start.value + DECREASE * trial.t * start.slope && Number.isFinite(trial.value);
  const isFlat = (trial: Trial) => Math.abs(trial.slope) <= -CURVATURE * start.slope;

  let low = start, t = first;
  let high: Trial | undefined;
  for (let tries = 0; tries < MAX_STEP_TRIES; tries++) {
    const trial = at(t);
    if (!isLower(trial) || trial.value >= low.value && low !== start) high = trial;
    else if (isFlat(trial)) return trial;
    else {
      if (trial.slope * ((high?.t ?? Infinity) - low.t) >= 0) high = low;
      low = trial;
    }
    if (high === undefined) t *= 2;
    else {
      if (Math.abs(high.t - low.t) <= 1e-16 * Math.abs(low.t)) break;
      t = between(low, high);
    }
  }
  // The best that was seen, if it is any better.
  return low.value < start.value ? low : undefined;
}

/** The lowest point of the cubic through both ends, kept away from them. */
function between(low: Trial, high: Trial): number {
  const span = high.t - low.t;
  const middle = low.t + span / 2;
  if (!Number.isFinite(high.value) || !Number.isFinite(high.slope)) return low.t + span / 10;
  const d1 = low.slope + high.slope - 3 * (low.value - high.value) / (low.t - high.t);
  const under = d1 * d1 - low.slope * high.slope;
  if (!(under >= 0)) return middle;
  const d2 = Math.sign(span) * Math.sqrt(under);
  const t = high.t - span * (high.slope + d2 - d1) / (high.slope - low.slope + 2 * d2);
  const [least, most] = [low.t + 0.1 * span, low.t + 0.9 * span].sort((a, b) => a - b);
  return t >= least! && t <= most! ? t : middle;
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

function norm(a: Float64Array): number {
  return Math.sqrt(dot(a, a));
}

function addScaled(target: Float64Array, factor: number, x: Float64Array): void {
  for (let i = 0; i < target.length; i++) target[i]! += factor * x[i]!;
}
