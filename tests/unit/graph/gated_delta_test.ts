/** The gated delta rule and its convolution beside their recurrences, token by token. */
import { assert } from "@std/assert";
import type { Value } from "../../../core/graph/value.ts";
import { RandomStream } from "../../../core/base/random.ts";
import { packedCausalConv } from "../../../core/ops/causal_conv.ts";
import { gatedDelta, packedGatedDelta } from "../../../core/ops/gated_delta.ts";
import { CpuDevice } from "../../../core/runtime/onnxruntime/cpu.ts";
import { ReferenceDevice } from "../../../core/runtime/reference/device.ts";
import type { Device } from "../../../core/runtime/device.ts";
import { programOf, runOn } from "../../device/programs.ts";

const random = new RandomStream(11, "gated delta");
const normal = (count: number, scale = 1) =>
  Array.from({ length: count }, () => scale * random.normal());

/** S ← e^g S;  S ← S + k (β (v − Sᵀ k))ᵀ;  o = Sᵀ q, for one head; a document begins with `state`. */
function recurrence(
  { q, k, v, decay, beta, state }: Record<"q" | "k" | "v" | "decay" | "beta" | "state", number[]>,
  { T, Dk, Dv, first }: { T: number; Dk: number; Dv: number; first: number[] },
): { o: number[]; state: number[] } {
  let S = [...state];
  const o: number[] = [];
  for (let t = 0; t < T; t++) {
    if (first[t] === t) S = [...state];
    S = S.map((s) => s * Math.exp(decay[t]!));
    for (let j = 0; j < Dv; j++) {
      let read = 0;
      for (let i = 0; i < Dk; i++) read += S[i * Dv + j]! * k[t * Dk + i]!;
      const update = beta[t]! * (v[t * Dv + j]! - read);
      for (let i = 0; i < Dk; i++) S[i * Dv + j]! += k[t * Dk + i]! * update;
    }
    for (let j = 0; j < Dv; j++) {
      o.push(Array.from({ length: Dk }, (_, i) => S[i * Dv + j]! * q[t * Dk + i]!).reduce(sum));
    }
  }
  return { o, state: S };
}

const sum = (a: number, b: number) => a + b;

function assertClose(found: ArrayLike<number>, expected: readonly number[], tolerance: number) {
  const scale = Math.max(1, ...expected.map(Math.abs));
  expected.forEach((value, i) => {
    const error = Math.abs(found[i]! - value) / scale;
    assert(error <= tolerance, `[${i}]: found ${found[i]}, expected ${value}`);
  });
}

/** Unit keys; `repeats` makes all of them one, as where a text repeats a token. */
function inputsOf(T: number, Dk: number, Dv: number, repeats: boolean) {
  const unit = (vector: number[]) => {
    const length = Math.hypot(...vector);
    return vector.map((x) => x / length);
  };
  const one = unit(normal(Dk));
  return {
    q: normal(T * Dk),
    k: Array.from({ length: T }, () => repeats ? one : unit(normal(Dk))).flat(),
    v: normal(T * Dv),
    decay: Array.from({ length: T }, () => repeats ? 0 : -0.2 * random.uniform()),
    beta: Array.from({ length: T }, () => repeats ? 1 : random.uniform()),
    state: normal(Dk * Dv),
  };
}

/** Places where documents begin, for every token. */
function firstsOf(T: number, starts: readonly number[]): number[] {
  return Array.from({ length: T }, (_, t) => starts.findLast((start) => start <= t)!);
}

const DEVICES: Record<string, () => Device> = {
  reference: () => new ReferenceDevice("f32"),
  cpu: () => new CpuDevice({ threads: 1 }),
};

for (const [name, open] of Object.entries(DEVICES)) {
  for (
    const [about, T, starts, repeats] of [
      ["one token", 1, undefined, false],
      ["two chunks and a part of one", 150, undefined, false],
      ["one token again and again", 130, undefined, true],
      ["documents within, across and at the borders of chunks", 200, [0, 5, 64, 100, 101], false],
      ["a document behind a repeated token", 130, [0, 70], true],
    ] as const
  ) {
    Deno.test(`gated delta rule on ${name}: ${about}`, async () => {
      const [Dk, Dv] = [8, 5];
      const inputs = inputsOf(T, Dk, Dv, repeats);
      const first = firstsOf(T, starts ?? [-1]);
      const expected = recurrence(inputs, { T, Dk, Dv, first });
      const shapes = {
        ...{ q: [1, T, 1, Dk], k: [1, T, 1, Dk], v: [1, T, 1, Dv] },
        ...{ decay: [1, T, 1], beta: [1, T, 1], state: [1, 1, Dk, Dv] },
        first: { i32: [1, T] },
      };
      const program = programOf("gated_delta", shapes, ({ first, ...x }): Record<string, Value> => {
        if (starts) return { o: packedGatedDelta({ ...x, first }) };
        const [o, after] = gatedDelta.all(x, {});
        return { o: o!, after: after! };
      });
      const found = await runOn(open(), program, { ...inputs, ...(starts ? { first } : {}) });
      assertClose(found.get("o")!, expected.o, 2e-5);
      if (!starts) assertClose(found.get("after")!, expected.state, 2e-5);
    });
  }

  Deno.test(`causal convolution on ${name}: documents begin behind the state`, async () => {
    const [T, C, K] = [9, 3, 4], before = K - 1;
    const first = firstsOf(T, [0, 2, 7]);
    const [x, weight, past] = [normal(T * C), normal(C * K), normal(before * C)];
    const input = (t: number, c: number) => {
      const place = t - first[t]!;
      return (back: number) =>
        back <= place ? x[(t - back) * C + c]! : past[c * before + before + place - back]!;
    };
    const expected = Array.from({ length: T * C }, (_, at) => {
      const [t, c] = [Math.floor(at / C), at % C], own = input(t, c);
      const y = Array.from({ length: K }, (_, i) => weight[c * K + before - i]! * own(i)).reduce(
        sum,
      );
      return y / (1 + Math.exp(-y));
    });
    const shapes = {
      x: [1, T, C],
      weight: [C, 1, K],
      past: [1, before, C],
      first: { i32: [1, T] },
    };
    const program = programOf("causal_conv", shapes, (inputs) => packedCausalConv(inputs));
    const found = await runOn(open(), program, { x, weight, past, first });
    assertClose(found.get("result")!, expected, 1e-6);
  });
}
