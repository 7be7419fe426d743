/** Linear layers: cuBLASLt for many rows and for gradients, one GEMV kernel for up to 8 rows. */
import text from "../../../../kernels/forward/linear.cu" with { type: "text" };
import type { TensorType } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { linear } from "../../../ops/linear.ts";
import { inputGradientProduct, linearProduct, weightGradientProduct } from "../driver/cublaslt.ts";
import { FEW_ROWS, GROUP_SIZE, layersOf, linearsOp } from "../fuse/linears.ts";
import { blocks, grid, kernel, kernelFile } from "./define.ts";
import { f32, sumRows } from "./reduce.ts";
import { gradientRule, listRule, type Rule, rule } from "./rule.ts";

/** Rows that the kernel is compiled for. */
const ROWS = [1, 4, FEW_ROWS];

/** In f32 the output is f32 anyway. */
export const LINEAR = kernelFile(
  "forward/linear.cu",
  text,
  ROWS.flatMap((ROWS) =>
    [[0, 0], [1, 0], [1, 1]].map(([BF16, F32_OUT]) => ({
      ...{ BF16: BF16!, ROWS, F32_OUT: F32_OUT! },
    }))
  ),
);

/** Columns of a block, SPAN of linear.cu. */
const SPAN = 16;

const group = kernel(
  LINEAR,
  "linear",
  ({ N0, N1, N2 }) => grid(128, blocks(N0!, SPAN) + blocks(N1!, SPAN) + blocks(N2!, SPAN)),
);

export const LINEAR_RULES: readonly Rule[] = [
  rule(linear, (l, inputs, _, [output]) => {
    const x = l.operand(inputs.x), weight = l.operand(inputs.weight);
    const bias = inputs.bias && l.operand(inputs.bias);
    const [M, K] = x.shape as [number, number];
    const shape = linearProduct([M, weight.shape[0]!, K, l.dtype], !!bias);
    return [l.product(shape, [weight, x, bias], l.type(output.shape))];
  }),
  listRule(linearsOp, (l, inputs, attributes, outputs) => {
    const x = l.operand(inputs[0]);
    const [M, K] = x.shape as [number, number];
    const layers = layersOf(inputs, attributes);
    const scalars: Record<string, number> = { M, K };
    const reads: Record<string, Value | undefined> = { x };
    const writes: Record<string, TensorType | undefined> = {};
    for (let i = 0; i < GROUP_SIZE; i++) {
      const layer = layers[i], output = outputs[i];
      reads[`weight${i}`] = layer && l.operand(layer.weight);
      reads[`bias${i}`] = layer?.bias && l.operand(layer.bias);
      writes[`y${i}`] = output && (attributes.f32Out ? output : l.type(output.shape));
      scalars[`N${i}`] = layer?.weight.shape[0] ?? 0;
    }
    const defines = {
      ROWS: ROWS.find((rows) => M <= rows)!,
      F32_OUT: Number(attributes.f32Out && l.dtype === "bf16"),
    };
    return l.launch(group, { reads, writes, scalars, defines });
  }),
  gradientRule(linear, (l, { x, weight }, { upstream }) => {
    const [M, K] = x.shape as [number, number];
    const N = weight.shape[0]!;
    const sizes = [M, N, K, l.dtype] as const;
    const dy = l.operand(upstream);
    return {
      x: () => l.product(inputGradientProduct(sizes), [l.operand(weight), dy], l.type(x.shape)),
      weight: () => l.product(weightGradientProduct(sizes), [l.operand(x), dy], f32(N, K)),
      bias: () => sumRows(l, dy, M, [N]),
    };
  }),
];
