/**
 * The reference device: primitives in plain TypeScript, in f64 or f32, slow and obvious.
 *
 * It expands every model op to its reference meaning and runs inside the arena that the memory plan
 * lays out, so each of its results also proves the plan.
 */
import { type MemoryPlan, placeOf, planMemory } from "../../graph/memory_plan.ts";
import { prepare } from "../../graph/rewrite.ts";
import type { Program } from "../../graph/program.ts";
import { type DType, elementBytes, elementCount, type TensorType } from "../../graph/types.ts";
import type { Value } from "../../graph/value.ts";
import {
  type Bindings,
  checkBindings,
  type Device,
  type Executable,
  type HostArray,
  type HostTensor,
  type Weights,
} from "../device.ts";
import { HostDevice } from "../host_device.ts";
import { letSignalsThrough } from "../../base/abortable.ts";
import { weightValues } from "../weights.ts";
import { evaluate, type Operand } from "./evaluate.ts";
import { TRAITS } from "../traits.ts";

/** Arithmetic of the reference: `f64` rounds nothing, `f32` rounds every stored result. */
export type Precision = "f64" | "f32";

export class ReferenceDevice extends HostDevice implements Device {
  readonly name = "reference";
  readonly traits = TRAITS.reference;
  readonly cacheType = "f32";

  /** Makes a device that computes f32 tensors in the given precision. */
  constructor(private readonly precision: Precision = "f64") {
    super();
  }

  plan(program: Program, _weights?: Weights): MemoryPlan {
    return planMemory(prepare(program, (op) => !op.decompose), { bytesOf: (t) => this.#bytes(t) });
  }

  compile(program: Program, weights: Weights): Promise<Executable> {
    const prepared = prepare(program, (op) => !op.decompose);
    const plan = planMemory(prepared, { bytesOf: (dtype) => this.#bytes(dtype) });
    const arena = new ArrayBuffer(plan.sections.temporaries);
    const fixed = new Map<Value, Operand>();
    for (const [name, value] of prepared.parameters) {
      const weight = weights.get(name);
      if (!weight) continue;
      const tensor = this.allocate(value);
      tensor.data.set(weightValues(weight));
      fixed.set(value, tensor);
    }
    for (const node of prepared.nodes) {
      for (const value of node.outputs) {
        const { section, offset } = plan.placements.get(value)!;
        if (section !== "temporaries") continue;
        fixed.set(value, { shape: value.shape, data: this.#array(value, arena, offset) });
      }
    }
    return Promise.resolve({
      run: (bindings) => run(prepared, plan, { weights, fixed, bindings }),
    });
  }

  allocate(type: TensorType): HostTensor {
    const { dtype, shape } = type;
    const buffer = new ArrayBuffer(elementCount(shape) * this.#bytes(dtype));
    return { dtype, shape, data: this.#array(type, buffer, 0) };
  }

  view(tensor: HostTensor, start: number, type: TensorType): HostTensor {
    const data = tensor.data.subarray(start, start + elementCount(type.shape));
    return { dtype: type.dtype, shape: type.shape, data };
  }

  close(): void {}

  #bytes(dtype: DType): number {
    return dtype === "f32" && this.precision === "f64" ? 8 : elementBytes(dtype);
  }

  #array({ dtype, shape }: TensorType, buffer: ArrayBuffer, offset: number): HostArray {
    const count = elementCount(shape);
    if (dtype === "i32") return new Int32Array(buffer, offset, count);
    if (dtype === "bool") return new Uint8Array(buffer, offset, count);
    if (dtype !== "f32") throw new TypeError(`cannot compute in ${dtype}, expected f32`);
    if (this.precision === "f64") return new Float64Array(buffer, offset, count);
    return new Float32Array(buffer, offset, count);
  }
}

async function run(
  program: Program,
  plan: MemoryPlan,
  given: { weights: Weights; fixed: ReadonlyMap<Value, Operand>; bindings: Bindings },
): Promise<void> {
  const { weights, fixed, bindings } = given;
  checkBindings(program, weights, bindings);
  await letSignalsThrough();
  const bound = new Map<Value, Operand>();
  for (const values of [program.outputs, program.state, program.inputs]) { // an output may be an input
    for (const [name, value] of values) bound.set(value, bindings.get(name) as HostTensor);
  }
  for (const [name, value] of program.parameters) {
    if (!fixed.has(value)) bound.set(value, bindings.get(name) as HostTensor);
  }
  // A value that shares a bound tensor's memory (an update, a view of an input) is found by its place.
  const byPlace = new Map<string, Operand>();
  for (const [value, operand] of [...fixed, ...bound]) byPlace.set(placeOf(plan, value), operand);
  const operandOf = (value: Value): Operand => {
    const known = fixed.get(value) ?? bound.get(value);
    if (known) return known;
    return { shape: value.shape, data: byPlace.get(placeOf(plan, value))!.data };
  };
  for (const node of program.nodes) {
    evaluate(node, operandOf(node.outputs[0]!), node.inputs.map(operandOf));
  }
  for (const [name, value] of program.outputs) { // two names may stand for one value
    const target = bindings.get(name) as HostTensor;
    const source = operandOf(value).data;
    if (target.data !== source) target.data.set(source);
  }
}
