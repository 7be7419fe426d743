/**
 * Matrix products by cuBLASLt, which picks an algorithm for each shape once.
 *
 * The library counts columns first: our row-major matrix [rows, columns] is its matrix [columns, rows], so
 * Y = X Wᵀ is asked for as Yᵀ = W Xᵀ, with the weight in the place of A.
 */
import type { Block, ComputeType } from "../memory.ts";
import { checkCublas, readCublas } from "./errors.ts";
import type { CublasLtSymbols } from "./symbols.ts";

/** One product D = op(A) op(B), column-major as the library has it. */
export interface ProductShape {
  /** Rows and columns of D, and the size that is summed over. */
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly transposeA?: boolean;
  readonly transposeB?: boolean;
  readonly input: ComputeType;
  readonly output: ComputeType;
  /** True if a vector of m elements is added to every column. */
  readonly bias: boolean;
}

/** Addresses of one product. */
export interface ProductOperands {
  readonly a: bigint;
  readonly b: bigint;
  readonly bias: bigint;
  readonly d: bigint;
}

/** A product made ready: descriptor and layouts. */
export interface Product {
  readonly shape: ProductShape;
  readonly descriptor: bigint;
  readonly a: bigint;
  readonly b: bigint;
  readonly d: bigint;
  /** Kept here, since the library reads it by address. */
  readonly algorithm: Uint8Array<ArrayBuffer>;
}

/** The value of an attribute, in an array of its type. */
type Attribute = ArrayBufferView<ArrayBuffer>;

const COMPUTE_F32 = 68;
const TYPE: Readonly<Record<ComputeType, number>> = { f32: 0, bf16: 14 };
const DESCRIPTOR = { transposeA: 3, transposeB: 4, epilogue: 7, bias: 8, biasType: 26 } as const;
const EPILOGUE_BIAS = 4;
const PREFERENCE_WORKSPACE = 1;
/** Alignment of A, B, C and D. */
const PREFERENCE_ALIGNMENTS = [5, 6, 7, 8];
/** Addresses of matrices are multiples of this: views of long arrays begin anywhere. */
const ALIGNMENT = 16;
/** Bytes of a heuristic result; the algorithm is its first 64, its status lies at 72. */
const RESULT_BYTES = 96;
const ALGORITHM_BYTES = 64;
const RESULT_STATUS = 72;
/** CUBLAS_STATUS_NOT_SUPPORTED */
const NOT_SUPPORTED = 15;

/** Bytes of workspace that the library may use; one for all products of a stream. */
export const WORKSPACE_BYTES = 32 << 20;

/** The library with one workspace. */
export class Products {
  readonly #lt: CublasLtSymbols;
  readonly #handle: bigint;
  readonly #known = new Map<string, Product>();
  /** alpha and beta, which are read by address. */
  readonly #factors = new Float32Array([1, 0]);
  readonly #alpha: bigint;

  /** `workspace` holds `WORKSPACE_BYTES`. */
  constructor(symbols: CublasLtSymbols, private readonly workspace: Block) {
    this.#lt = symbols;
    this.#handle = readCublas("start cuBLASLt", (out) => symbols.cublasLtCreate(out));
    this.#alpha = Deno.UnsafePointer.value(Deno.UnsafePointer.of(this.#factors));
  }

  /**
   * A product made ready; the same object for the same shape.
   * @throws {CudaError} when the library has no algorithm for it
   */
  prepare(shape: ProductShape): Product {
    return this.#known.getOrInsertComputed(JSON.stringify(shape), () => {
      const { m, n, k, transposeA, transposeB, input, output } = shape;
      const described = {
        shape,
        descriptor: this.#descriptor(shape),
        a: transposeA ? this.#layout(input, k, m) : this.#layout(input, m, k),
        b: transposeB ? this.#layout(input, n, k) : this.#layout(input, k, n),
        d: this.#layout(output, m, n),
      };
      return { ...described, algorithm: this.#choose(described) };
    });
  }

  /** Puts a product into a stream. */
  launch(product: Product, operands: ProductOperands, stream: bigint): void {
    const { descriptor, a, b, d, algorithm, shape } = product;
    if (shape.bias) this.#set(descriptor, DESCRIPTOR.bias, BigUint64Array.of(operands.bias));
    const address = Deno.UnsafePointer.value(Deno.UnsafePointer.of(algorithm));
    const code = this.#lt.cublasLtMatmul(
      ...[this.#handle, descriptor, this.#alpha, operands.a, a, operands.b, b] as const,
      ...[this.#alpha + 4n, operands.d, d, operands.d, d, address] as const,
      ...[this.workspace.address, BigInt(WORKSPACE_BYTES), stream] as const,
    );
    checkCublas(code, `multiply matrices of ${shape.m}, ${shape.n} and ${shape.k}`);
  }

  close(): void {
    for (const { descriptor, a, b, d } of this.#known.values()) {
      this.#lt.cublasLtMatmulDescDestroy(descriptor);
      for (const layout of [a, b, d]) this.#lt.cublasLtMatrixLayoutDestroy(layout);
    }
    checkCublas(this.#lt.cublasLtDestroy(this.#handle), "close cuBLASLt");
  }

  #descriptor({ transposeA, transposeB, bias, output }: ProductShape): bigint {
    const create = this.#lt.cublasLtMatmulDescCreate;
    const made = readCublas("describe a product", (out) => create(out, COMPUTE_F32, TYPE.f32));
    this.#set(made, DESCRIPTOR.transposeA, Int32Array.of(Number(transposeA ?? false)));
    this.#set(made, DESCRIPTOR.transposeB, Int32Array.of(Number(transposeB ?? false)));
    if (bias) {
      this.#set(made, DESCRIPTOR.epilogue, Int32Array.of(EPILOGUE_BIAS));
      this.#set(made, DESCRIPTOR.biasType, Int32Array.of(TYPE[output]));
      // Algorithms are chosen for some pointer; the real one takes its place at every launch.
      this.#set(made, DESCRIPTOR.bias, BigUint64Array.of(this.workspace.address));
    }
    return made;
  }

  #layout(type: ComputeType, rows: number, columns: number): bigint {
    const sizes = [BigInt(rows), BigInt(columns), BigInt(rows)] as const;
    const create = this.#lt.cublasLtMatrixLayoutCreate;
    return readCublas("describe a matrix", (out) => create(out, TYPE[type], ...sizes));
  }

  #choose({ shape, descriptor, a, b, d }: Omit<Product, "algorithm">): Uint8Array<ArrayBuffer> {
    const lt = this.#lt, { m, n, k } = shape;
    const doing = `find an algorithm for matrices of ${m}, ${n} and ${k}`;
    const preference = readCublas(doing, (out) => lt.cublasLtMatmulPreferenceCreate(out));
    const prefer = (attribute: number, value: Attribute) => {
      const set = lt.cublasLtMatmulPreferenceSetAttribute;
      checkCublas(set(preference, attribute, value, BigInt(value.byteLength)), doing);
    };
    try {
      prefer(PREFERENCE_WORKSPACE, BigUint64Array.of(BigInt(WORKSPACE_BYTES)));
      for (const each of PREFERENCE_ALIGNMENTS) prefer(each, Uint32Array.of(ALIGNMENT));
      const result = new Uint8Array(RESULT_BYTES), found = new Int32Array(1);
      const code = lt.cublasLtMatmulAlgoGetHeuristic(
        ...[this.#handle, descriptor, a, b, d, d, preference, 1, result, found] as const,
      );
      checkCublas(code || (found[0] === 0 ? NOT_SUPPORTED : 0), doing);
      checkCublas(new DataView(result.buffer).getInt32(RESULT_STATUS, true), doing);
      return result.slice(0, ALGORITHM_BYTES);
    } finally {
      lt.cublasLtMatmulPreferenceDestroy(preference);
    }
  }

  #set(descriptor: bigint, attribute: number, value: Attribute): void {
    const set = this.#lt.cublasLtMatmulDescSetAttribute;
    const code = set(descriptor, attribute, value, BigInt(value.byteLength));
    checkCublas(code, "describe a product");
  }
}
