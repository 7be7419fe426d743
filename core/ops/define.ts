/** What every op file starts from: an op definition whose attributes are typed. */
import type { Attributes, Op } from "../graph/types.ts";

/** A model op: like a primitive, but with a decomposition that gives its meaning. */
export type ModelOp<A extends Attributes> = Op<A> & Required<Pick<Op<A>, "decompose">>;

/** Types an op definition; its attributes are inferred from `infer` and `decompose`. */
export function modelOp<A extends Attributes>(op: ModelOp<A>): ModelOp<A> {
  return op;
}
