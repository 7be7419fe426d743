/**
 * Matrix products by cuBLASLt.
 *
 * Takes the shape of a product, from which the library picks an algorithm once; returns an object
 * that launches it on addresses.
 *
 * The library counts columns first. Our row-major matrix [rows, columns] is its matrix [columns,
 * rows], so Y = X Wᵀ is asked for as Yᵀ = W Xᵀ, with the weight in the place of A.
 */
import type { Block } from "../memory.ts";
import type { ComputeType } from "../memory.ts";
import { checkCublas } from "./errors.ts";
import type { CublasLtSymbols } from "./symbols.ts";

/** One product D = op(A) op(B), column-major as the library has it. */
export interface ProductShape {
  /** Rows and columns of D, and what is summed over. */
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly transposeA: boolean;
  readonly transposeB: boolean;
  readonly input: ComputeType;
  readonly output: ComputeType;
  /** Whether a vector of m elements is added to every column. */
  readonly bias: boolean;
}

/** Y [M, N] = X [M, K] W [N, K]ᵀ + bias [N]: A is W, B is X. */
export function linearProduct(
  M: number,
  N: number,
  K: number,
  type: ComputeType,
  bias: boolean,
): ProductShape {
  const sizes = { m: N, n: M, k: K, transposeA: true, transposeB: false };
  return { ...sizes, input: type, output: type, bias };
}

/** dX [M, K] = dY [M, N] W [N, K]: A is W, B is dY. */
export function inputGradientProduct(
  M: number,
  N: number,
  K: number,
  type: ComputeType,
): ProductShape {
  const sizes = { m: K, n: M, k: N, transposeA: false, transposeB: false };
  return { ...sizes, input: type, output: type, bias: false };
}

/** dW [N, K] = dY [M, N]ᵀ X [M, K], in f32: A is X, B is dY. */
export function weightGradientProduct(
  M: number,
  N: number,
  K: number,
  type: ComputeType,
): ProductShape {
  const sizes = { m: K, n: N, k: M, transposeA: false, transposeB: true };
  return { ...sizes, input: type, output: "f32", bias: false };
}

/** Addresses of one product. */
export interface ProductOperands {
  readonly a: bigint;
  readonly b: bigint;
  readonly bias: bigint;
  readonly d: bigint;
}

const COMPUTE_F32 = 68;
const TYPE: Readonly<Record<ComputeType, number>> = { f32: 0, bf16: 14 };
const DESCRIPTION = { transposeA: 3, transposeB: 4, epilogue: 7, bias: 8, biasType: 26 } as const;
const EPILOGUE_BIAS = 4;
const PREFERENCE = { workspace: 1, alignA: 5, alignB: 6, alignC: 7, alignD: 8 } as const;
/** Bytes of a heuristic result; the algorithm is its first 64. */
const RESULT_BYTES = 96;
const ALGORITHM_BYTES = 64;
/** What the addresses of matrices are multiples of: views of long arrays begin anywhere. */
const ALIGNMENT = 16;
/** Where a heuristic result says whether it can be used. */
const RESULT_STATE = 72;

/** Bytes of workspace that the library may use; one for all products of a stream. */
export const WORKSPACE_BYTES = 32 << 20;

/** The library with one workspace. */
export class Products {
  readonly #lt: CublasLtSymbols;
  readonly #handle: bigint;
  readonly #workspace: Block;
  readonly #known = new Map<string, Product>();
  readonly #out = new BigUint64Array(1);
  /** alpha and beta, which are read by address. */
  readonly #factors = new Float32Array([1, 0]);
  readonly #one: bigint;

  /** `workspace` holds `WORKSPACE_BYTES`. */
  constructor(symbols: CublasLtSymbols, workspace: Block) {
    [this.#lt, this.#workspace] = [symbols, workspace];
    this.#handle = this.#make("start cuBLASLt", (out) => symbols.cublasLtCreate(out));
    this.#one = Deno.UnsafePointer.value(Deno.UnsafePointer.of(this.#factors));
  }

  /**
   * A product made ready; the same object for the same shape.
   * @throws {CudaError} when the library has no algorithm for it
   */
  prepare(shape: ProductShape): Product {
    const key = JSON.stringify(shape);
    const known = this.#known.get(key);
    if (known) return known;
    const { m, n, k, transposeA, transposeB, input, output } = shape;
    const description = this.#description(shape);
    const a = transposeA ? this.#layout(input, k, m) : this.#layout(input, m, k);
    const b = transposeB ? this.#layout(input, n, k) : this.#layout(input, k, n);
    const d = this.#layout(output, m, n);
    const algorithm = this.#choose(shape, [description, a, b, d]);
    const product = { shape, description, a, b, d, algorithm };
    this.#known.set(key, product);
    return product;
  }

  /** Puts a product into a stream. */
  launch(product: Product, operands: ProductOperands, stream: bigint): void {
    const { description, a, b, d, algorithm, shape } = product;
    if (shape.bias) this.#set(description, DESCRIPTION.bias, new BigUint64Array([operands.bias]));
    const address = Deno.UnsafePointer.value(Deno.UnsafePointer.of(algorithm));
    const code = this.#lt.cublasLtMatmul(
      ...[this.#handle, description, this.#one, operands.a, a, operands.b, b] as const,
      ...[this.#one + 4n, operands.d, d, operands.d, d, address] as const,
      ...[this.#workspace.address, BigInt(WORKSPACE_BYTES), stream] as const,
    );
    checkCublas(code, `multiply matrices of ${shape.m}, ${shape.n} and ${shape.k}`);
  }

  /** Frees everything. */
  close(): void {
    for (const { description, a, b, d } of this.#known.values()) {
      this.#lt.cublasLtMatmulDescDestroy(description);
      for (const layout of [a, b, d]) this.#lt.cublasLtMatrixLayoutDestroy(layout);
    }
    this.#known.clear();
    checkCublas(this.#lt.cublasLtDestroy(this.#handle), "close cuBLASLt");
  }

  #description({ transposeA, transposeB, bias, output }: ProductShape): bigint {
    const lt = this.#lt;
    const made = this.#make(
      "describe a product",
      (out) => lt.cublasLtMatmulDescCreate(out, COMPUTE_F32, TYPE.f32),
    );
    const number = (attribute: number, value: number) =>
      this.#set(made, attribute, Int32Array.of(value));
    number(DESCRIPTION.transposeA, Number(transposeA));
    number(DESCRIPTION.transposeB, Number(transposeB));
    if (bias) {
      number(DESCRIPTION.epilogue, EPILOGUE_BIAS);
      number(DESCRIPTION.biasType, TYPE[output]);
      // Algorithms are chosen for some pointer; the real one takes its place at every launch.
      this.#set(made, DESCRIPTION.bias, BigUint64Array.of(this.#workspace.address));
    }
    return made;
  }

  #layout(type: ComputeType, rows: number, columns: number): bigint {
    return this.#make(
      "describe a matrix",
      (out) =>
        this.#lt.cublasLtMatrixLayoutCreate(
          out,
          TYPE[type],
          BigInt(rows),
          BigInt(columns),
          BigInt(rows),
        ),
    );
  }

  #choose(
    { m, n, k }: ProductShape,
    [description, a, b, d]: readonly [bigint, bigint, bigint, bigint],
  ): Uint8Array<ArrayBuffer> {
    const lt = this.#lt;
    const doing = `find an algorithm for matrices of ${m}, ${n} and ${k}`;
    const preference = this.#make(doing, (out) => lt.cublasLtMatmulPreferenceCreate(out));
    try {
      const prefer = (
        attribute: number,
        value: BigUint64Array<ArrayBuffer> | Uint32Array<ArrayBuffer>,
      ) =>
        checkCublas(
          lt.cublasLtMatmulPreferenceSetAttribute(
            preference,
            attribute,
            value,
            BigInt(value.byteLength),
          ),
          doing,
        );
      prefer(PREFERENCE.workspace, BigUint64Array.of(BigInt(WORKSPACE_BYTES)));
      for (const name of ["alignA", "alignB", "alignC", "alignD"] as const) {
        prefer(PREFERENCE[name], Uint32Array.of(ALIGNMENT));
      }
      const [result, found] = [new Uint8Array(RESULT_BYTES), new Int32Array(1)];
      const code = lt.cublasLtMatmulAlgoGetHeuristic(
        ...[this.#handle, description, a, b, d, d, preference, 1, result, found] as const,
      );
      checkCublas(code, doing);
      if (found[0] === 0) checkCublas(15, doing);
      checkCublas(new DataView(result.buffer).getInt32(RESULT_STATE, true), doing);
      return result.slice(0, ALGORITHM_BYTES);
    } finally {
      lt.cublasLtMatmulPreferenceDestroy(preference);
    }
  }

  #set(
    description: bigint,
    attribute: number,
    value: Int32Array<ArrayBuffer> | BigUint64Array<ArrayBuffer>,
  ): void {
    const code = this.#lt.cublasLtMatmulDescSetAttribute(
      description,
      attribute,
      value,
      BigInt(value.byteLength),
    );
    checkCublas(code, "describe a product");
  }

  #make(doing: string, call: (out: BigUint64Array<ArrayBuffer>) => number): bigint {
    this.#out[0] = 0n;
    checkCublas(call(this.#out), doing);
    return this.#out[0]!;
  }
}

/** A product made ready. */
export interface Product {
  readonly shape: ProductShape;
  readonly description: bigint;
  readonly a: bigint;
  readonly b: bigint;
  readonly d: bigint;
  /** Kept here, since the library reads it by address. */
  readonly algorithm: Uint8Array<ArrayBuffer>;
}
