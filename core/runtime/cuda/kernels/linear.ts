/**
 * Linear layers: cuBLASLt for many rows and for gradients; for up to 8 rows a kernel that reads each weight
 * once, on tensor cores in bf16.
 */
import text from "../../../../kernels/forward/linear.cu" with { type: "text" };
import mmaText from "../../../../kernels/forward/linear_mma.cu" with { type: "text" };
import type { Node } from "../../../graph/program.ts";
import type { TensorType } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { linear } from "../../../ops/linear.ts";
import { sampleOp } from "../../../ops/sample.ts";
import type { Lowering } from "../lowering.ts";
import { blocks, grid, kernel, kernelFile } from "./define.ts";
import { f32, sumRows } from "./reduce.ts";
import { gradientRule, type Rule, rule } from "./rule.ts";

/** Rows that the kernel takes; cuBLASLt multiplies more. */
const FEW_ROWS = 8;

/** Layers of one launch. */
const GROUP_SIZE = 3;

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

export const LINEAR_MMA = kernelFile(
  "forward/linear_mma.cu",
  mmaText,
  [0, 1].map((F32_OUT) => ({ BF16: 1, F32_OUT })),
);

/** Columns of a block, SPAN of both files. */
const SPAN = 16;
/** Elements of a row that a warp of `linear_mma` takes at once, CHUNK there. */
const CHUNK = 32;

const blocksOf = ({ N0, N1, N2 }: Record<string, number>) =>
  [N0, N1, N2].reduce((sum, columns) => sum! + blocks(columns!, SPAN), 0)!;

const fewRows = kernel(LINEAR, "linear", (sizes) => grid(128, blocksOf(sizes)));
const fewRowsMma = kernel(LINEAR_MMA, "linear_mma", (sizes) => grid(256, blocksOf(sizes)));

/** Returns whether the results of a layer, such as logits, are read as f32. */
function isReadAsF32({ uses }: Lowering, { outputs: [output] }: Node): boolean {
  return uses.isResult(output!) || uses.readers(output!).some(({ op }) => op === sampleOp);
}

/**
 * Layers that read the same few rows, such as q, k and v or gate and up: they are one launch.
 *
 * In decoding, reading the weights is all the work, and a launch costs about 2 µs beside it: of a 3B model
 * (36 layers, 6 GB in bf16, 1.8 ms at 3.35 TB/s) three launches a layer fewer are 0.2 ms, a tenth of a step.
 */
function groupOf(l: Lowering, node: Node): readonly Node[] {
  const [x] = node.inputs as [Value];
  const hasParameters = ({ inputs }: Node) => inputs.slice(1).every((each) => !l.uses.maker(each));
  const alike = l.uses.readers(x).filter((other) =>
    linear.of(other)?.inputs.x === x && hasParameters(other) &&
    isReadAsF32(l, other) === isReadAsF32(l, node)
  );
  const at = alike.indexOf(node);
  return at < 0 ? [node] : alike.slice(at - at % GROUP_SIZE).slice(0, GROUP_SIZE);
}

/** The results of a group of layers. */
function multiplied(l: Lowering, group: readonly Node[]): Value[] {
  const layers = group.map(({ inputs }) => linear.named(inputs));
  const x = l.operand(layers[0]!.x), isF32 = isReadAsF32(l, group[0]!);
  const [M, K] = x.shape as [number, number];
  const scalars: Record<string, number> = { M, K };
  const reads: Record<string, Value | undefined> = { x };
  const writes: Record<string, TensorType | undefined> = {};
  for (let i = 0; i < GROUP_SIZE; i++) {
    const layer = layers[i], output = group[i]?.outputs[0];
    reads[`weight${i}`] = layer && l.operand(layer.weight);
    reads[`bias${i}`] = layer?.bias && l.operand(layer.bias);
    writes[`y${i}`] = output && (isF32 ? output : l.type(output.shape));
    scalars[`N${i}`] = layer?.weight.shape[0] ?? 0;
  }
  const F32_OUT = Number(isF32 && l.dtype === "bf16");
  if (l.dtype === "bf16" && K % CHUNK === 0) {
    return l.launch(fewRowsMma, { reads, writes, scalars, defines: { F32_OUT } });
  }
  const defines = { ROWS: ROWS.find((rows) => M <= rows)!, F32_OUT };
  return l.launch(fewRows, { reads, writes, scalars, defines });
}

export const LINEAR_RULES: readonly Rule[] = [
  rule(linear, (l, inputs, _, [output]) => {
    if (inputs.x.shape[0]! <= FEW_ROWS) {
      const group = groupOf(l, l.uses.maker(output)!);
      const outputs = group.map((node) => node.outputs[0]!);
      return [l.shared("linear", outputs, () => multiplied(l, group))[outputs.indexOf(output)]!];
    }
    const x = l.operand(inputs.x), weight = l.operand(inputs.weight);
    const bias = inputs.bias && l.operand(inputs.bias);
    const [n, k] = x.shape as [number, number];
    // Y [n, m] = X [n, k] W [m, k]ᵀ + bias [m]
    const sizes = { m: weight.shape[0]!, n, k, transposeA: true };
    return [l.product(sizes, [weight, x, bias], l.type(output.shape))];
  }),
  gradientRule(linear, (l, { x, weight }, { upstream }) => {
    const [M, K] = x.shape as [number, number];
    const N = weight.shape[0]!;
    const dy = l.operand(upstream);
    return {
      // dX [M, K] = dY [M, N] W [N, K]
      x: l.product({ m: K, n: M, k: N }, [l.operand(weight), dy], l.type(x.shape)),
      // dW [N, K] = dY [M, N]ᵀ X [M, K]
      weight: l.product({ m: K, n: N, k: M, transposeB: true }, [l.operand(x), dy], f32(N, K)),
      bias: sumRows(l, dy, M, [N]),
    };
  }),
];
