/**
 * cuBLASLt of an emulated machine: descriptors as records, products by product.cpp, in stream order.
 *
 * Types are f32 and bf16, sums f32, matrices column-major, and the epilogues are none and the bias over rows
 * of D. The one algorithm of the heuristic needs a workspace, so that a caller that forgets it fails.
 */
import type { CublasLtSymbols } from "../../core/runtime/cuda/driver/symbols.ts";
import { EmulatorError, type HostBuffer, type Memory, viewOf } from "./memory.ts";
import { CODE, Handles, type Streams } from "./streams.ts";

const VERSION = 130100n;
const CUBLAS = {
  success: 0,
  notInitialized: 1,
  invalidValue: 7,
  executionFailed: 13,
  notSupported: 15,
} as const;
const F32 = 0;
const BF16 = 14;
const COMPUTE_F32 = 68;
/** Numbers of attributes. */
const DESC = { transA: 3, transB: 4, epilogue: 7, bias: 8, biasType: 26 } as const;
const EPILOGUE = { none: 1n, bias: 4n } as const;
const PREFERENCE_WORKSPACE = 1;
/** The heuristic's answer: 96 bytes, of which the first 64 are the algorithm. */
const RESULT_BYTES = 96;
const MAGIC = 0x70726f64;
const WORKSPACE = 1024n;

/** Attributes by number, as integers. */
type Attributes = Map<number, bigint>;

interface Layout {
  readonly type: number;
  readonly rows: bigint;
  readonly columns: bigint;
  readonly ld: bigint;
}

const viewAt = (address: bigint) => new Deno.UnsafePointerView(Deno.UnsafePointer.create(address)!);

const sizeOf = (type: number) => type === F32 ? 4n : 2n;

/** Bytes from the first element to the last. */
const extent = ({ rows, columns, ld, type }: Layout) => ((columns - 1n) * ld + rows) * sizeOf(type);

/** Returns whether the shapes make a product, and one that is emulated. */
function fits(product: Attributes, a: Layout, b: Layout, d: Layout): number {
  const [m, k] = product.get(DESC.transA) ? [a.columns, a.rows] : [a.rows, a.columns];
  const [inner, n] = product.get(DESC.transB) ? [b.columns, b.rows] : [b.rows, b.columns];
  if (k !== inner || d.rows !== m || d.columns !== n) return CUBLAS.invalidValue;
  if ([a, b, d].some(({ ld, rows }) => ld < rows)) return CUBLAS.invalidValue;
  const types = [a, b, d].map(({ type }) => type);
  const known = types.every((type) => type === F32 || type === BF16) && a.type === b.type &&
    (a.type !== F32 || d.type === F32);
  const epilogue = product.get(DESC.epilogue) ?? EPILOGUE.none;
  const isEmulated = known && (epilogue === EPILOGUE.none || epilogue === EPILOGUE.bias);
  return isEmulated ? CUBLAS.success : CUBLAS.notSupported;
}

/** The whole table. */
export function cublasLtSymbols(memory: Memory, streams: Streams): CublasLtSymbols {
  const libraries = new Handles<Attributes>(), descs = new Handles<Attributes>();
  const layouts = new Handles<Layout>(), preferences = new Handles<Attributes>();
  const make = <T>(list: Handles<T>, out: HostBuffer, made: T) => {
    viewOf(out).setBigUint64(0, list.add(made), true);
    return CUBLAS.success;
  };
  const destroy = <T>(list: Handles<T>) => list.destroyer(CUBLAS.invalidValue);
  /** The product of some handles, or the code that refuses it. */
  const find = (library: bigint, desc: bigint, ...matrices: readonly [bigint, bigint, bigint]) => {
    const product = descs.get(desc);
    const [left, right, result] = matrices.map((handle) => layouts.get(handle));
    if (!libraries.has(library) || !product || !left || !right || !result) {
      return CUBLAS.invalidValue;
    }
    const fault = fits(product, left, right, result);
    return fault === CUBLAS.success ? { product, left, right, result } : fault;
  };
  const set =
    (list: Handles<Attributes>) =>
    (handle: bigint, attribute: number, value: HostBuffer, bytes: bigint): number => {
      const view = viewOf(value);
      const integer = bytes === 4n ? BigInt(view.getInt32(0, true)) : view.getBigInt64(0, true);
      const isSet = list.get(handle)?.set(attribute, integer);
      return isSet ? CUBLAS.success : CUBLAS.invalidValue;
    };
  const symbols: CublasLtSymbols = {
    cublasLtGetVersion: () => VERSION,
    cublasLtCreate: (out) => make(libraries, out, new Map()),
    cublasLtDestroy: destroy(libraries),
    cublasLtMatmulDescCreate: (out, compute, scale) =>
      compute === COMPUTE_F32 && scale === F32 ? make(descs, out, new Map()) : CUBLAS.notSupported,
    cublasLtMatmulDescSetAttribute: set(descs),
    cublasLtMatmulDescDestroy: destroy(descs),
    cublasLtMatrixLayoutCreate: (out, type, rows, columns, ld) =>
      make(layouts, out, { type, rows, columns, ld }),
    cublasLtMatrixLayoutDestroy: destroy(layouts),
    cublasLtMatmulPreferenceCreate: (out) => make(preferences, out, new Map()),
    cublasLtMatmulPreferenceSetAttribute: set(preferences),
    cublasLtMatmulPreferenceDestroy: destroy(preferences),
    cublasLtMatmulAlgoGetHeuristic(
      ...[library, desc, a, b, , d, preference, requested, results, found]
    ) {
      const wishes = preferences.get(preference);
      const matched = find(library, desc, a, b, d);
      if (!wishes || requested !== 1) return CUBLAS.invalidValue;
      if (typeof matched === "number") return matched;
      const view = viewOf(results);
      for (let i = 0; i < RESULT_BYTES; i++) view.setUint8(i, 0);
      const enough = (wishes.get(PREFERENCE_WORKSPACE) ?? 0n) >= WORKSPACE;
      viewOf(found).setInt32(0, enough ? 1 : 0, true);
      if (!enough) return CUBLAS.notSupported;
      view.setUint32(0, MAGIC, true);
      return CUBLAS.success;
    },
    cublasLtMatmul(
      ...[library, desc, alpha, a, aLayout, b, bLayout, beta, , , d, dLayout, algorithm, ...rest]
    ) {
      const [workspace, workspaceBytes, stream] = rest;
      const found = find(library, desc, aLayout, bLayout, dLayout);
      if (typeof found === "number") return found;
      const { product, left, right, result } = found;
      const isPlain = viewAt(alpha).getFloat32() === 1 && viewAt(beta).getFloat32() === 0;
      if (!isPlain) return CUBLAS.notSupported;
      const isKnown = viewAt(algorithm).getUint32() === MAGIC;
      if (!isKnown || workspaceBytes < WORKSPACE) return CUBLAS.invalidValue;
      const bias = product.get(DESC.epilogue) === EPILOGUE.bias ? product.get(DESC.bias)! : 0n;
      const biasType = product.get(DESC.biasType) ?? BigInt(result.type);
      const ranges = [
        [workspace, workspaceBytes],
        ...[[a, extent(left)], [b, extent(right)], [d, extent(result)]],
        ...(bias ? [[bias, result.rows * sizeOf(Number(biasType))]] : []),
      ] as [bigint, bigint][];
      const outside = ranges.find(([address, bytes]) => !memory.holds(address, bytes));
      if (outside) {
        throw new EmulatorError(
          `Cannot multiply: found ${outside[1]} bytes at 0x${outside[0].toString(16)}, ` +
            "expected them within an allocation",
        );
      }
      const transA = product.get(DESC.transA) ?? 0n, transB = product.get(DESC.transB) ?? 0n;
      const words = BigInt64Array.of(
        ...[result.rows, result.columns, transA ? left.rows : left.columns],
        ...[a, left.ld, BigInt(left.type), transA],
        ...[b, right.ld, BigInt(right.type), transB],
        ...[d, result.ld, BigInt(result.type), 0n, bias, biasType],
      );
      const code = streams.enqueue(stream, () => {
        memory.library.machineSet(workspace, 255, WORKSPACE);
        memory.library.machineProduct(words);
        memory.checkGuards("after a product");
      });
      return code === CODE.success ? CUBLAS.success : CUBLAS.executionFailed;
    },
  };
  return memory.guarded(symbols, CUBLAS.notInitialized, ["cublasLtGetVersion"]);
}
