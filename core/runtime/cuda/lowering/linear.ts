/**
 * Linear layers as launches: products of the library for many rows, our kernels for few.
 *
 * With few rows, as in decoding, reading weights is all the work, and every launch costs a gap. So
 * layers that read the same rows go together, and gate and up projection end in their product.
 *
 *   product   more than 64 rows
 *   mma       bf16 on tensor cores, 2 … 64 rows of a multiple of 8 elements
 *   simple    everything else
 */
import type { Node } from "../../../graph/program.ts";
import { elementCount } from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { LINEAR_MMA_ROWS, LINEAR_ROWS } from "../kernel_table.ts";
import { linearProduct } from "../products.ts";
import type { Lowering, Rule } from "./lowering.ts";

/** Rows up to which reading the weights is what takes time. */
const SKINNY_ROWS = LINEAR_MMA_ROWS.at(-1)!;

/** Elements that the mma kernel reads at once, and where each row begins at a multiple of. */
const MMA_STEP = 8;

/** Weights that one launch takes. */
const MOST_TOGETHER = 3;

/** Which kernel multiplies few rows, as what its name ends in, and the rows it is compiled for. */
function skinnyKernel(l: Lowering, M: number, K: number): { suffix: string; ROWS: number } {
  const fits = l.elementType === "bf16" && M > 1 && K % MMA_STEP === 0;
  const choices: readonly number[] = fits ? LINEAR_MMA_ROWS : LINEAR_ROWS[l.elementType];
  const ROWS = choices.find((rows) => M <= rows) ?? choices.at(-1)!;
  return { suffix: fits ? "_mma" : "", ROWS };
}

export const linear: Rule = (l, node) => {
  const [output] = node.outputs as [Value];
  const [x, weight, bias] = node.inputs.map((value) => l.element(value)) as [Value, Value, Value?];
  const [M, K] = x.shape as [number, number];
  if (M > SKINNY_ROWS) {
    const shape = linearProduct(M, weight.shape[0]!, K, l.elementType, !!bias);
    return [l.product(shape, [weight, x, bias], l.elements(output.shape))];
  }
  const made = l.made(output);
  if (made) return [made];
  const together = siblings(l, node);
  const wide = leavesWide(l, output);
  const numbers: Record<string, number> = { M, K, N0: 0, N1: 0, N2: 0 };
  const reads: Record<string, Value | undefined> = { x };
  const writes: Record<string, { dtype: Value["dtype"]; shape: Value["shape"] } | undefined> = {};
  for (let i = 0; i < MOST_TOGETHER; i++) {
    const own = together[i];
    const [, w, b] = own?.inputs ?? [];
    reads[`weight${i}`] = w && l.element(w);
    reads[`bias${i}`] = b && l.element(b);
    writes[`y${i}`] = own && (wide ? own.outputs[0]! : l.elements(own.outputs[0]!.shape));
    if (w) numbers[`N${i}`] = w.shape[0]!;
  }
  const { suffix, ROWS } = skinnyKernel(l, M, K);
  const results = l.launch(`linear${suffix}`, {
    reads,
    writes,
    numbers,
    macros: { ROWS, WIDE: Number(wide && l.elementType === "bf16") },
  });
  together.forEach((own, i) => l.replace(own.outputs[0]!, results[i]!));
  return [results[0]!];
};

/** Whether a result, such as logits, is read as floats, and loses nothing if it is written so. */
function leavesWide(l: Lowering, output: Value): boolean {
  return l.isOutput(output) || l.readers(output).some(({ op }) => op.name === "sample");
}

/** The node and those after it that read the same rows and leave in the same type. */
function siblings(l: Lowering, node: Node): Node[] {
  const [output] = node.outputs as [Value];
  const others = l.readers(node.inputs[0]!).filter((other) =>
    other !== node && other.op === node.op && other.inputs[0] === node.inputs[0] &&
    !l.made(other.outputs[0]!) && leavesWide(l, other.outputs[0]!) === leavesWide(l, output) &&
    other.inputs.slice(1).every((value) => l.isGiven(value))
  );
  return [node, ...others].slice(0, MOST_TOGETHER);
}

export const swiglu: Rule = (l, { inputs, outputs: [y] }) => {
  const makers = inputs.map((value) => l.maker(value));
  const [gateNode, upNode] = makers;
  const rows = gateNode?.inputs[0];
  const fits = makers.every((maker) =>
    maker?.op.name === "linear" && maker.inputs[0] === rows && maker.inputs.length === 2
  );
  // Their results must be wanted nowhere else: training reads them again.
  const alone = inputs.every((value) => l.readers(value).length === 1 && !l.isOutput(value));
  if (fits && alone && rows!.shape[0]! <= SKINNY_ROWS) {
    const [x, gate, up] = [rows!, gateNode!.inputs[1]!, upNode!.inputs[1]!].map((value) =>
      l.element(value)
    );
    const [M, K] = x!.shape as [number, number];
    const { suffix, ROWS } = skinnyKernel(l, M, K);
    return l.launch(`linear_swiglu${suffix}`, {
      reads: { x, gate, up },
      writes: { y: l.elements(y!.shape) },
      numbers: { M, N: gate!.shape[0]!, K },
      macros: { ROWS, WIDE: 0 },
    });
  }
  const [gate, up] = inputs.map((value) => l.element(value)) as [Value, Value];
  return l.launch("swiglu", {
    reads: { gate, up },
    writes: { y: gate },
    numbers: { count: elementCount(gate.shape) },
    reuse: "gate",
  });
};
