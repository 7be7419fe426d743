/**
 * The tfjs device: primitives as ops of TensorFlow, one at a time, in f32.
 *
 * It expands every model op to its reference meaning, as the reference device does. Which TensorFlow
 * computes is the caller's choice: `open.ts` brings the native one, tests a backend in JavaScript.
 */
import { type MemoryPlan, planMemory } from "../../graph/memory_plan.ts";
import { prepare } from "../../graph/rewrite.ts";
import type { Program } from "../../graph/program.ts";
import { tensorBytes, type TensorType } from "../../graph/types.ts";
import type { Value } from "../../graph/value.ts";
import {
  type Bindings,
  checkBindings,
  type CopyRegion,
  type Device,
  type DeviceTensor,
  type Executable,
  type Weight,
  type Weights,
} from "../device.ts";
import { HostDevice } from "../host_device.ts";
import { letSignalsThrough } from "../../base/abortable.ts";
import { Owned } from "../owned.ts";
import { weightValues } from "../weights.ts";
import { evaluate } from "./evaluate.ts";
import { type Slot, Storage, type Tensor, type TensorFlow, TfjsTensor } from "./storage.ts";
import { TRAITS } from "../traits.ts";

export class TfjsDevice extends HostDevice implements Device {
  readonly name = "tfjs";
  readonly traits = TRAITS.tfjs;
  readonly cacheType = "f32";
  readonly #slots = new Owned<Slot>((slot) => {
    slot.tensor?.dispose();
    slot.tensor = undefined;
  });
  /** Weights that were brought over, which all programs share. */
  readonly #weights = new WeakMap<Weight, TfjsTensor>();

  /** Computes with the backend that is set in `tf`. */
  constructor(private readonly tf: TensorFlow) {
    super();
  }

  /**
   * Bytes on TensorFlow's side; a result lies over no input and is freed after its last reader. What
   * TensorFlow needs inside an op, and copies in host memory, come on top.
   */
  plan(program: Program, _weights?: Weights): MemoryPlan {
    const lowered = lower(program);
    const { placements, sections, totalBytes } = planMemory(lowered, { reuseInputs: false });
    // Until a run ends, what it replaces is there beside what replaces it.
    const { updates, outputs } = lowered;
    const replaced = [...updates.values(), ...outputs.values()]
      .reduce((total, value) => total + tensorBytes(value), 0);
    const temporaries = sections.temporaries + replaced;
    return {
      placements,
      sections: { ...sections, temporaries },
      totalBytes: totalBytes + replaced,
    };
  }

  compile(program: Program, weights: Weights): Promise<Executable> {
    const lowered = lower(program);
    planMemory(lowered, { reuseInputs: false }); // refuses state that is read after it is written
    const fixed = new Map<Value, TfjsTensor>();
    for (const [name, value] of lowered.parameters) {
      const weight = weights.get(name);
      if (weight) fixed.set(value, this.#weight(weight, value));
    }
    const steps = stepsOf(lowered);
    return Promise.resolve({
      run: async (bindings) => {
        checkBindings(lowered, weights, bindings);
        await letSignalsThrough();
        this.tf.tidy(() => run(this.tf, lowered, steps, { fixed, bindings }));
      },
    });
  }

  allocate(type: TensorType): TfjsTensor {
    const storage = new Storage(this.tf, type);
    this.#slots.add(storage, storage.slot);
    return new TfjsTensor(storage, 0, type);
  }

  view(tensor: DeviceTensor, start: number, type: TensorType): TfjsTensor {
    const { storage, start: from } = tensor as TfjsTensor;
    return new TfjsTensor(storage, from + start, type);
  }

  override write(tensor: DeviceTensor, data: ArrayLike<number>): void {
    super.write(tensor, data);
    (tensor as TfjsTensor).storage.changed();
  }

  override clear(tensor: DeviceTensor): void {
    super.clear(tensor);
    (tensor as TfjsTensor).storage.changed();
  }

  override copy(source: DeviceTensor, target: DeviceTensor, region: CopyRegion): void {
    super.copy(source, target, region);
    (target as TfjsTensor).storage.changed();
  }

  close(): void {
    this.#slots.close();
  }

  #weight(weight: Weight, type: TensorType): TfjsTensor {
    return this.#weights.getOrInsertComputed(weight, () => {
      const tensor = this.allocate(type);
      this.tf.tidy(() => tensor.storage.put(0, this.tf.tensor(weightValues(weight))));
      return tensor;
    });
  }
}

function lower(program: Program): Program {
  return prepare(program, (op) => !op.decompose);
}

/** A node, and the values that are not read after it. */
interface Step {
  readonly node: Program["nodes"][number];
  readonly done: readonly Value[];
}

function stepsOf({ nodes, outputs, updates }: Program): Step[] {
  const read = new Set<Value>([...outputs.values(), ...updates.values()]);
  const steps = nodes.toReversed().map((node) => {
    const done = [...new Set([...node.inputs, ...node.outputs])].filter((each) => !read.has(each));
    node.inputs.forEach((value) => read.add(value));
    return { node, done };
  });
  return steps.reverse();
}

/** Computes everything, then overwrites outputs and state; to be called inside a scope. */
function run(
  tf: TensorFlow,
  { inputs, parameters, state, outputs, updates }: Program,
  steps: readonly Step[],
  { fixed, bindings }: { fixed: ReadonlyMap<Value, TfjsTensor>; bindings: Bindings },
): void {
  const tensors = new Map<Value, Tensor>();
  for (const values of [inputs, parameters, state]) {
    for (const [name, value] of values) {
      const { storage, start } = fixed.get(value) ?? bindings.get(name) as TfjsTensor;
      tensors.set(value, storage.get(start, value));
    }
  }
  for (const { node, done } of steps) {
    const operands = node.inputs.map((value) => tensors.get(value)!);
    tensors.set(node.outputs[0]!, evaluate(tf, node, operands));
    for (const value of done) {
      tensors.get(value)!.dispose();
      tensors.delete(value);
    }
  }
  for (const results of [updates, outputs]) {
    for (const [name, value] of results) {
      const { storage, start } = bindings.get(name) as TfjsTensor;
      storage.put(start, tensors.get(value)!);
    }
  }
}
