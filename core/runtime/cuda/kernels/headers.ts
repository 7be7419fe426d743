/** Headers that kernel files may include; the compiler is handed them from memory. */
import angle from "../../../../kernels/common/angle.cuh" with { type: "text" };
import hopper from "../../../../kernels/common/hopper.cuh" with { type: "text" };
import linearHeader from "../../../../kernels/common/linear.cuh" with { type: "text" };
import mixtures from "../../../../kernels/common/mixtures.cuh" with { type: "text" };
import ptx from "../../../../kernels/common/ptx.cuh" with { type: "text" };
import reduce from "../../../../kernels/common/reduce.cuh" with { type: "text" };
import tiles from "../../../../kernels/common/tiles.cuh" with { type: "text" };
import turn from "../../../../kernels/common/turn.cuh" with { type: "text" };
import types from "../../../../kernels/common/types.cuh" with { type: "text" };

/** Headers by the name in `#include`. */
export const KERNEL_HEADERS: ReadonlyMap<string, string> = new Map([
  ["common/angle.cuh", angle],
  ["common/hopper.cuh", hopper],
  ["common/linear.cuh", linearHeader],
  ["common/mixtures.cuh", mixtures],
  ["common/ptx.cuh", ptx],
  ["common/reduce.cuh", reduce],
  ["common/tiles.cuh", tiles],
  ["common/turn.cuh", turn],
  ["common/types.cuh", types],
]);
