/**
 * One product through the emulated cuBLASLt as a device asks for it, next to plain TypeScript.
 *
 * The way is the whole one: descriptors, heuristic, workspace, and the call inside a captured
 * graph.
 */
import { assertEquals } from "@std/assert";
import { narrow, widen } from "../../core/base/dtype.ts";
import { type Bench, type Type, values } from "./testing.ts";

/** Operands and result of one product of row-major matrices: whose columns are the rows of whom. */
export interface Form {
  readonly name: string;
  /** Transposition, rows, columns of A, B, and rows, columns of D, all column-major. */
  readonly a: readonly [trans: number, rows: number, columns: number];
  readonly b: readonly [trans: number, rows: number, columns: number];
  readonly wide?: boolean;
  readonly bias?: boolean;
  readonly beta?: number;
  readonly batch?: number;
}

/** What a product gave, and what it should have given. */
export interface Answer {
  readonly found: Float32Array<ArrayBuffer>;
  readonly expected: readonly number[];
  readonly type: Type;
}

/** Multiplies, doubled, onto a result of 0.5. */
export function multiply(bench: Bench, type: Type, form: Form): Answer {
  const { a, b, batch = 1, beta = 0 } = form;
  const lt = bench.machine.products;
  const [m, k] = a[0] ? [a[2], a[1]] : [a[1], a[2]];
  const n = b[0] ? b[1] : b[2];
  const outType = form.wide ? "f32" : type;
  const number = (each: Type) => each === "f32" ? 0 : 14;
  const make = (call: (out: BigUint64Array<ArrayBuffer>) => number) => {
    const out = new BigUint64Array(1);
    assertEquals(call(out), 0);
    return out[0]!;
  };
  const i32 = (value: number) => Int32Array.of(value);
  const layout = (rows: number, columns: number, each: Type) => {
    const handle = make((out) =>
      lt.cublasLtMatrixLayoutCreate(out, number(each), BigInt(rows), BigInt(columns), BigInt(rows))
    );
    assertEquals(lt.cublasLtMatrixLayoutSetAttribute(handle, 5, i32(batch), 4n), 0);
    const stride = BigInt64Array.of(BigInt(rows * columns));
    assertEquals(lt.cublasLtMatrixLayoutSetAttribute(handle, 6, stride, 8n), 0);
    return handle;
  };
  const library = make((out) => lt.cublasLtCreate(out));
  const desc = make((out) => lt.cublasLtMatmulDescCreate(out, 68, 0));
  const bias = values(m, 12);
  assertEquals(lt.cublasLtMatmulDescSetAttribute(desc, 3, i32(a[0]), 4n), 0);
  assertEquals(lt.cublasLtMatmulDescSetAttribute(desc, 4, i32(b[0]), 4n), 0);
  if (form.bias) {
    const address = BigUint64Array.of(bench.put(bias, type));
    assertEquals(lt.cublasLtMatmulDescSetAttribute(desc, 7, i32(4), 4n), 0);
    assertEquals(lt.cublasLtMatmulDescSetAttribute(desc, 8, address, 8n), 0);
  }
  const layouts = [layout(a[1], a[2], type), layout(b[1], b[2], type), layout(m, n, outType)];
  const [A, B, D] = layouts as [bigint, bigint, bigint];
  const preference = make((out) => lt.cublasLtMatmulPreferenceCreate(out));
  const workspaceBytes = BigInt(2 ** 16);
  const most = BigUint64Array.of(workspaceBytes);
  assertEquals(lt.cublasLtMatmulPreferenceSetAttribute(preference, 1, most, 8n), 0);
  const [results, found] = [new Uint8Array(96), new Int32Array(1)];
  const ask = lt.cublasLtMatmulAlgoGetHeuristic;
  assertEquals(ask(library, desc, A, B, D, D, preference, 1, results, found), 0);
  assertEquals(found[0], 1);

  const [x, y, before] = [values(batch * a[1] * a[2], 10), values(batch * b[1] * b[2], 11), 0.5];
  const out = bench.put(new Float32Array(batch * m * n).fill(before), outType);
  const scalars = Float32Array.of(2, beta);
  const at = Deno.UnsafePointer.value(Deno.UnsafePointer.of(scalars));
  const algo = Deno.UnsafePointer.value(Deno.UnsafePointer.of(results));
  const workspace = bench.empty(Number(workspaceBytes));
  const [left, right] = [bench.put(x, type), bench.put(y, type)];
  const issue = () =>
    lt.cublasLtMatmul(
      ...[library, desc, at, left, A, right, B, at + 4n] as const,
      ...[out, D, out, D, algo, workspace, workspaceBytes, bench.stream] as const,
    );
  const graph = bench.driver.capture(bench.stream, () => assertEquals(issue(), 0));
  bench.driver.launchGraph(graph, bench.stream);
  const expected = Array.from({ length: batch * m * n }, (_, i) => {
    const [set, column, row] = [Math.floor(i / m / n), Math.floor(i / m) % n, i % m];
    let sum = 0;
    for (let j = 0; j < k; j++) {
      const inX = a[0] ? row * a[1] + j : j * a[1] + row;
      const inY = b[0] ? j * b[1] + column : column * b[1] + j;
      sum += x[set * a[1] * a[2] + inX]! * y[set * b[1] * b[2] + inY]!;
    }
    return 2 * sum + beta * before + (form.bias ? bias[row]! : 0);
  });
  const exact = widen(narrow(Float32Array.from(expected), outType), outType);
  return { found: bench.get(out, expected.length, outType), expected: [...exact], type: outType };
}
