/**
 * unit_lower_inverse: (I + A)⁻¹ of the part of A below its diagonal.
 *
 * Blocks of the diagonal are inverted in pairs, sizes 1, 2, 4 …: with X the inverses of the blocks so far,
 * and B the blocks of A that join two of them,
 *
 *   X ← X − X B X
 *
 * The product of I + (−A)^(2^i) is as short, but its factors grow like binomial coefficients where keys
 * repeat, up to 10¹⁸ for 64 tokens.
 *
 * With Y the result:  Ā = −Yᵀ Ȳ Yᵀ below the diagonal.
 */
import { formatType } from "../graph/types.ts";
import type { Value } from "../graph/value.ts";
import { modelOp } from "./define.ts";

/** x [..., C, C] → [..., C, C] */
export const unitLowerInverse = modelOp()({
  name: "unit_lower_inverse",
  inputs: ["x"],
  infer({ x }) {
    if (x.shape.at(-1) !== x.shape.at(-2)) throw new TypeError(`cannot invert ${formatType(x)}`);
    return x;
  },
  decompose({ x }) {
    const C = x.shape.at(-1)!;
    const places = x.graph.iota(C);
    let inverse = places.equalFlags(places.reshape([C, 1])).broadcast(x.shape);
    for (let size = 1; size < C; size *= 2) {
      const joining = joiningBlocks(x, size);
      // The first inverse is the identity.
      const product = size === 1 ? joining : inverse.matmul(joining).matmul(inverse);
      inverse = inverse.sub(product);
    }
    return inverse;
  },
  vjp({ x }, _, dy, y) {
    const C = x.shape.at(-1)!;
    const places = x.graph.iota(C);
    const isBelow = places.add(1).lessEqual(places.reshape([C, 1]));
    const product = y.matmul(dy, { transposeA: true, scale: -1 }).matmul(y, { transposeB: true });
    return { x: isBelow.select(product, 0) };
  },
});

/** The blocks below the diagonal that join two blocks of `size` to one of twice the size. */
function joiningBlocks(x: Value, size: number): Value {
  const C = x.shape.at(-1)!;
  /** True where row and column lie in one block of this size, and above the diagonal. */
  const isInside = (size: number) => {
    const blocks = Array.from({ length: C }, (_, i) => Math.floor(i / size));
    const block = x.graph.constant(blocks, "i32");
    return block.reshape([C, 1]).lessEqual(block);
  };
  return isInside(2 * size).select(isInside(size).select(0, x), 0);
}
