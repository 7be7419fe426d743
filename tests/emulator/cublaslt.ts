/**
 * cuBLASLt of an emulated machine: descriptors as records, products by product.cpp.
 *
 * Takes memory and streams of the machine, so that products run in stream order and can be
 * captured; returns a symbol table. Types are f32 and bf16, sums f32, matrices column-major, and
 * the epilogues are none and the bias over rows of D. The one algorithm that the heuristic knows
 * wants a workspace, so that a caller that forgets it is found out.
 */
import { CUBLASLT_SYMBOLS, type CublasLtSymbols } from "../../core/runtime/cuda/driver/symbols.ts";
import { EmulatorError, type HostBuffer, type Memory, viewOf } from "./memory.ts";
import { CODE, Handles, type Streams } from "./streams.ts";

const VERSION = 130100n;
const [SUCCESS, INVALID_VALUE, EXECUTION_FAILED, NOT_SUPPORTED] = [0, 7, 13, 15];
const [F32, BF16, COMPUTE_F32] = [0, 14, 68];
const [EPILOGUE_NONE, EPILOGUE_BIAS] = [1, 4];
/** Numbers of attributes. */
const DESC = { pointerMode: 2, transA: 3, transB: 4, epilogue: 7, bias: 8, biasType: 26 } as const;
const LAYOUT = {
  type: 0,
  rows: 2,
  columns: 3,
  ld: 4,
  batch: 5,
  batchStride: 6,
} as const;
const PREFERENCE_WORKSPACE = 1;
/** The heuristic's answer: 96 bytes, of which the first 64 are the algorithm. */
const RESULT = { bytes: 96, workspace: 64, state: 72, waves: 76 } as const;
const MAGIC = 0x70726f64;
const WORKSPACE = 1024n;
/** Bytes of an Operand and of a Product in product.cpp. */
const [OPERAND, PRODUCT] = [40, 216];

/** Attributes by number, as integers. */
type Attributes = Map<number, bigint>;

interface Matrix {
  readonly address: bigint;
  readonly type: number;
  readonly rows: bigint;
  readonly columns: bigint;
  readonly ld: bigint;
  readonly batch: bigint;
  readonly stride: bigint;
}

const pointerView = (address: bigint) =>
  new Deno.UnsafePointerView(Deno.UnsafePointer.create(address)!);
const readFloat = (address: bigint) => pointerView(address).getFloat32();
const readWord = (address: bigint) => pointerView(address).getUint32();

/** An attribute of 4 or 8 bytes. */
function readInteger(buffer: HostBuffer, bytes: bigint): bigint | undefined {
  const view = viewOf(buffer);
  if (bytes === 4n) return BigInt(view.getInt32(0, true));
  return bytes === 8n ? view.getBigInt64(0, true) : undefined;
}

const sizeOf = (type: number) => type === F32 ? 4n : 2n;

/** Bytes from the first element to the last. */
function extent({ rows, columns, ld, batch, stride, type }: Matrix): bigint {
  return ((batch - 1n) * stride + (columns - 1n) * ld + rows) * sizeOf(type);
}

/** Descriptors of all kinds by their handles. */
class Records {
  readonly libraries = new Handles<Attributes>();
  readonly descs = new Handles<Attributes>();
  readonly layouts = new Handles<Attributes>();
  readonly preferences = new Handles<Attributes>();

  /** A matrix at some address; undefined where there is no such layout. */
  matrix(address: bigint, layout: bigint): Matrix | undefined {
    const record = this.layouts.get(layout);
    if (!record) return undefined;
    const read = (attribute: number, otherwise = 0n) => record.get(attribute) ?? otherwise;
    return {
      ...{ address, type: Number(read(LAYOUT.type)), ld: read(LAYOUT.ld) },
      ...{ rows: read(LAYOUT.rows), columns: read(LAYOUT.columns) },
      ...{ batch: read(LAYOUT.batch, 1n), stride: read(LAYOUT.batchStride) },
    };
  }
}

/** Functions that make, fill and free descriptors. */
function recordFunctions(records: Records): Partial<CublasLtSymbols> {
  const { libraries, descs, layouts, preferences } = records;
  const make = (list: Handles<Attributes>, out: HostBuffer, attributes?: Attributes) => {
    viewOf(out).setBigUint64(0, list.add(attributes ?? new Map()), true);
    return SUCCESS;
  };
  const destroy = (list: Handles<Attributes>) => (handle: bigint) =>
    list.delete(handle) ? SUCCESS : INVALID_VALUE;
  const set =
    (list: Handles<Attributes>) =>
    (handle: bigint, attribute: number, value: HostBuffer, bytes: bigint): number => {
      const integer = readInteger(value, bytes);
      if (integer === undefined) return INVALID_VALUE;
      return list.get(handle)?.set(attribute, integer) ? SUCCESS : INVALID_VALUE;
    };
  return {
    cublasLtGetVersion: () => VERSION,
    cublasLtCreate: (out) => make(libraries, out),
    cublasLtDestroy: destroy(libraries),
    cublasLtMatmulDescCreate: (out, compute, scale) =>
      compute === COMPUTE_F32 && scale === F32 ? make(descs, out) : NOT_SUPPORTED,
    cublasLtMatmulDescSetAttribute: set(descs),
    cublasLtMatmulDescDestroy: destroy(descs),
    cublasLtMatrixLayoutCreate(out, type, rows, columns, ld) {
      const numbers = [
        [LAYOUT.type, BigInt(type)],
        [LAYOUT.rows, rows],
        [LAYOUT.columns, columns],
        [LAYOUT.ld, ld],
      ] as const;
      return make(layouts, out, new Map(numbers));
    },
    cublasLtMatrixLayoutSetAttribute: set(layouts),
    cublasLtMatrixLayoutDestroy: destroy(layouts),
    cublasLtMatmulPreferenceCreate: (out) => make(preferences, out),
    cublasLtMatmulPreferenceSetAttribute: set(preferences),
    cublasLtMatmulPreferenceDestroy: destroy(preferences),
  };
}

/** The choice of an algorithm: one where the product is possible and there is a workspace. */
function chooser(records: Records): CublasLtSymbols["cublasLtMatmulAlgoGetHeuristic"] {
  return (...[library, desc, a, b, c, d, preference, requested, results, found]) => {
    const [product, wishes] = [records.descs.get(desc), records.preferences.get(preference)];
    if (!records.libraries.has(library) || !product || !wishes || requested < 1) {
      return INVALID_VALUE;
    }
    const list = [a, b, c, d].map((each) => records.matrix(0n, each));
    const fault = list.includes(undefined) ? INVALID_VALUE : fits(product, list as Four);
    if (fault !== SUCCESS) return fault;
    const view = viewOf(results);
    if (view.byteLength < RESULT.bytes * requested) return INVALID_VALUE;
    for (let i = 0; i < RESULT.bytes * requested; i++) view.setUint8(i, 0);
    const enough = (wishes.get(PREFERENCE_WORKSPACE) ?? 0n) >= WORKSPACE;
    viewOf(found).setInt32(0, enough ? 1 : 0, true);
    if (!enough) return NOT_SUPPORTED;
    view.setUint32(0, MAGIC, true);
    view.setBigUint64(RESULT.workspace, WORKSPACE, true);
    view.setFloat32(RESULT.waves, 1, true);
    return SUCCESS;
  };
}

/** The product itself, put into a stream. */
function multiplier(
  records: Records,
  memory: Memory,
  streams: Streams,
): CublasLtSymbols["cublasLtMatmul"] {
  return (
    ...[
      library,
      desc,
      alpha,
      a,
      aLayout,
      b,
      bLayout,
      beta,
      c,
      cLayout,
      d,
      dLayout,
      algorithm,
      workspace,
      workspaceBytes,
      stream,
    ]
  ) => {
    const product = records.descs.get(desc);
    const places = [[a, aLayout], [b, bLayout], [c, cLayout], [d, dLayout]] as const;
    const list = places.map(([address, layout]) => records.matrix(address, layout));
    if (!records.libraries.has(library) || !product || list.includes(undefined)) {
      return INVALID_VALUE;
    }
    const matrices = list as Four;
    const fault = fits(product, matrices);
    if (fault !== SUCCESS) return fault;
    if (algorithm !== 0n && (readWord(algorithm) !== MAGIC || workspaceBytes < WORKSPACE)) {
      return INVALID_VALUE;
    }
    if (workspaceBytes > 0n && !memory.holds(workspace, workspaceBytes)) return INVALID_VALUE;
    const outside = matrices.find((each) => !memory.holds(each.address, extent(each)));
    // Where β is 0, C is not read.
    if (outside && (outside !== matrices[2] || readFloat(beta) !== 0)) {
      throw new EmulatorError(
        `Cannot multiply: found ${extent(outside)} bytes at 0x${outside.address.toString(16)}, ` +
          "expected them within an allocation",
      );
    }
    const bias = biasOf(product);
    const biasBytes = matrices[3].rows *
      sizeOf(Number(product.get(DESC.biasType) ?? BigInt(matrices[3].type)));
    if (bias !== undefined && !memory.holds(bias, biasBytes)) {
      throw new EmulatorError(
        `Cannot add a bias: found 0x${bias.toString(16)}, expected ${biasBytes} bytes within an ` +
          "allocation",
      );
    }
    const bytes = packProduct(product, matrices, readFloat(alpha), readFloat(beta));
    const code = streams.enqueue(stream, () => {
      if (workspaceBytes > 0n) memory.library.machineSet(workspace, 255, 1n, WORKSPACE);
      memory.library.machineProduct(bytes);
      memory.checkGuards("after a product");
    });
    return code === CODE.success ? SUCCESS : EXECUTION_FAILED;
  };
}

/** The whole table; a function that is not emulated throws with its name. */
export function cublasLtSymbols(memory: Memory, streams: Streams): CublasLtSymbols {
  const records = new Records();
  const missing = Object.keys(CUBLASLT_SYMBOLS).map((name) => [name, () => {
    throw new EmulatorError(`Cannot call ${name}: found no emulation of it`);
  }]);
  const symbols: Partial<CublasLtSymbols> = {
    ...recordFunctions(records),
    cublasLtMatmulAlgoGetHeuristic: chooser(records),
    cublasLtMatmul: multiplier(records, memory, streams),
  };
  return { ...Object.fromEntries(missing), ...symbols } as CublasLtSymbols;
}

type Four = [a: Matrix, b: Matrix, c: Matrix, d: Matrix];

/** Whether the shapes make a product, and one that is emulated. */
function fits(product: Attributes, [a, b, c, d]: Four): number {
  const [m, k] = product.get(DESC.transA) ? [a.columns, a.rows] : [a.rows, a.columns];
  const [inner, n] = product.get(DESC.transB) ? [b.columns, b.rows] : [b.rows, b.columns];
  const all = [a, b, c, d];
  if (k !== inner || [c, d].some(({ rows, columns }) => rows !== m || columns !== n)) {
    return INVALID_VALUE;
  }
  if (all.some(({ batch, ld, rows }) => batch !== d.batch || ld < rows)) return INVALID_VALUE;
  if (all.some(({ type }) => type !== F32 && type !== BF16)) return NOT_SUPPORTED;
  if (a.type !== b.type || c.type !== d.type) return NOT_SUPPORTED;
  if (a.type === F32 && d.type !== F32) return NOT_SUPPORTED;
  const epilogue = Number(product.get(DESC.epilogue) ?? BigInt(EPILOGUE_NONE));
  if (epilogue !== EPILOGUE_NONE && epilogue !== EPILOGUE_BIAS) return NOT_SUPPORTED;
  return (product.get(DESC.pointerMode) ?? 0n) === 0n ? SUCCESS : NOT_SUPPORTED;
}

/** Address of what is added to every column; undefined where nothing is. */
function biasOf(product: Attributes): bigint | undefined {
  const biased = product.get(DESC.epilogue) === BigInt(EPILOGUE_BIAS);
  return biased ? product.get(DESC.bias) ?? 0n : undefined;
}

/** A Product of product.cpp. */
function packProduct(product: Attributes, matrices: Four, alpha: number, beta: number) {
  const [a, , , d] = matrices;
  const [transA, transB] = [product.get(DESC.transA) ?? 0n, product.get(DESC.transB) ?? 0n];
  const bytes = new Uint8Array(PRODUCT);
  const view = new DataView(bytes.buffer);
  const sizes = [d.rows, d.columns, transA ? a.rows : a.columns, d.batch];
  sizes.forEach((size, i) => view.setBigInt64(8 * i, size, true));
  const transposed = [transA, transB, 0n, 0n];
  matrices.forEach(({ address, ld, stride, type }, i) => {
    const words = [address, ld, stride, BigInt(type), transposed[i]!];
    words.forEach((word, j) => view.setBigInt64(32 + OPERAND * i + 8 * j, word, true));
  });
  const at = 32 + 4 * OPERAND;
  view.setBigInt64(at, biasOf(product) ?? 0n, true);
  view.setBigInt64(at + 8, product.get(DESC.biasType) ?? BigInt(d.type), true);
  view.setFloat32(at + 16, alpha, true);
  view.setFloat32(at + 20, beta, true);
  return bytes;
}
