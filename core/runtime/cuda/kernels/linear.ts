/**
 * Linear layers: products of the library for many rows, our kernels for few.
 *
 *   product   more than 64 rows
 *   mma       bf16 on tensor cores, 2 … 64 rows of a multiple of 8 elements
 *   simple    everything else
 */
import text from "../../../../kernels/forward/linear.cu" with { type: "text" };
import mmaText from "../../../../kernels/forward/linear_mma.cu" with { type: "text" };
import type { TensorType } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { linear } from "../../../ops/linear.ts";
import { FEW_ROWS, layersOf, linearsOp, linearSwiglu, MOST_TOGETHER } from "../fuse/linears.ts";
import type { Lowering } from "../lowering.ts";
import { inputGradientProduct, linearProduct, weightGradientProduct } from "../driver/cublaslt.ts";
import { blocks, kernel, kernelFile, type Specialisation, spread } from "./define.ts";
import { gradientRule, listRule, type Rule, rule } from "./rule.ts";
import { f32, sumRows } from "./sums.ts";

/** Rows that a block of `linear` computes for each reading of the weights. */
const LINEAR_ROWS = { f32: [1, 4, 8], bf16: [1] } as const;

/** Rows that a launch of `linear_mma` has room for. */
const MMA_ROWS = [8, 16, 32, FEW_ROWS] as const;

/** Elements that the mma kernel reads at once, and where each row begins at a multiple of. */
const MMA_STEP = 8;

function narrowAndWide(rows: readonly number[]): Specialisation[] {
  return rows.flatMap((ROWS) => [0, 1].map((WIDE) => ({ BF16: 1, ROWS, WIDE })));
}

export const LINEAR = kernelFile("forward/linear.cu", text, [
  // Wide results of float inputs are the same kernel.
  ...LINEAR_ROWS.f32.map((ROWS) => ({ BF16: 0, ROWS, WIDE: 0 })),
  ...narrowAndWide(LINEAR_ROWS.bf16),
]);
export const LINEAR_MMA = kernelFile("forward/linear_mma.cu", mmaText, narrowAndWide(MMA_ROWS));

const GROUP = "*y0 *y1 *y2 *x *weight0 *weight1 *weight2 *bias0 *bias1 *bias2 M N0 N1 N2 K";

const SIMPLE = {
  group: kernel(
    LINEAR,
    `linear ${GROUP}`,
    ({ M, N0, N1, N2, ROWS }) =>
      spread(128, blocks(N0!, 16) + blocks(N1!, 16) + blocks(N2!, 16), blocks(M!, ROWS!)),
  ),
  swiglu: kernel(
    LINEAR,
    "linear_swiglu *y *x *gate *up M N K",
    ({ M, N, ROWS }) => spread(128, blocks(N!, 8), blocks(M!, ROWS!)),
  ),
} as const;

const MMA = {
  group: kernel(LINEAR_MMA, `linear_mma ${GROUP}`, ({ N0, N1, N2, ROWS }) => {
    const columns = ROWS! <= 16 ? 16 : 32; // weight rows of one block
    return spread(256, blocks(N0!, columns) + blocks(N1!, columns) + blocks(N2!, columns));
  }),
  swiglu: kernel(
    LINEAR_MMA,
    "linear_swiglu_mma *y *x *gate *up M N K",
    ({ N }) => spread(256, blocks(N!, 16)),
  ),
} as const;

/** The kernels that multiply few rows, and the rows they are compiled for. */
export function kernelsFor(elements: Lowering["elementType"], M: number, K: number) {
  const fits = elements === "bf16" && M > 1 && K % MMA_STEP === 0;
  const choices: readonly number[] = fits ? MMA_ROWS : LINEAR_ROWS[elements];
  const ROWS = choices.find((rows) => M <= rows) ?? choices.at(-1)!;
  return { ...(fits ? MMA : SIMPLE), ROWS };
}

export const LINEAR_RULES: readonly Rule[] = [
  rule(linear, (l, inputs, _, [output]) => {
    const [x, weight] = [l.element(inputs.x), l.element(inputs.weight)];
    const bias = inputs.bias && l.element(inputs.bias);
    const [M, K] = x.shape as [number, number];
    const shape = linearProduct(M, weight.shape[0]!, K, l.elementType, !!bias);
    return [l.product(shape, [weight, x, bias], l.elements(output.shape))];
  }),
  listRule(linearsOp, (l, inputs, attributes, outputs) => {
    const x = l.element(inputs[0]);
    const [M, K] = x.shape as [number, number];
    const layers = layersOf(inputs, attributes);
    const numbers: Record<string, number> = { M, K };
    const reads: Record<string, Value | undefined> = { x };
    const writes: Record<string, TensorType | undefined> = {};
    for (let i = 0; i < MOST_TOGETHER; i++) {
      const [layer, output] = [layers[i], outputs[i]];
      reads[`weight${i}`] = layer && l.element(layer.weight);
      reads[`bias${i}`] = layer?.bias && l.element(layer.bias);
      writes[`y${i}`] = output && (attributes.wide ? output : l.elements(output.shape));
      numbers[`N${i}`] = layer?.weight.shape[0] ?? 0;
    }
    const { group, ROWS } = kernelsFor(l.elementType, M, K);
    const WIDE = Number(attributes.wide && l.elementType === "bf16");
    return l.launch(group, { reads, writes, numbers, macros: { ROWS, WIDE } });
  }),
  rule(linearSwiglu, (l, inputs, _, [y]) => {
    const [x, gate, up] = [l.element(inputs.x), l.element(inputs.gate), l.element(inputs.up)];
    const [M, K] = x.shape as [number, number];
    const { swiglu, ROWS } = kernelsFor(l.elementType, M, K);
    return l.launch(swiglu, {
      reads: { x, gate, up },
      writes: { y: l.elements(y.shape) },
      numbers: { M, N: gate.shape[0]!, K },
      macros: { ROWS, WIDE: 0 },
    });
  }),
  gradientRule(linear, (l, { x, weight }, { upstream }) => {
    const [M, K] = x.shape as [number, number];
    const N = weight.shape[0]!;
    const dy = l.element(upstream);
    return {
      x() {
        const shape = inputGradientProduct(M, N, K, l.elementType);
        return l.product(shape, [l.element(weight), dy], l.elements(x.shape));
      },
      weight() {
        const shape = weightGradientProduct(M, N, K, l.elementType);
        return l.product(shape, [l.element(x), dy], f32(N, K));
      },
      bias: () => sumRows(l, dy),
    };
  }),
];
