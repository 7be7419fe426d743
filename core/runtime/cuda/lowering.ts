/**
 * The state that the rules of `kernels/` lower a program with: operands in the type a kernel reads,
 * launches, weights, constants.
 *
 * The result is a program whose nodes are kernel launches and library products, so that its memory plan is
 * exactly what the device will use. Temporaries of a rule, such as partial sums, are values like all others.
 *
 * Floats are in one of two types: the compute dtype, bf16 or f32, and f32 for statistics, losses and
 * gradients of parameters. A rule asks for its operands in the type that its kernel reads, and a cast is
 * made where they are not in it; a constant weight is uploaded in each type asked for, and never cast.
 */
import { Builder } from "../../graph/builder.ts";
import { assign } from "../../graph/primitives.ts";
import { isNode, type Program } from "../../graph/program.ts";
import { dropUnread } from "../../graph/rewrite.ts";
import {
  elementBytes,
  formatType,
  type Shape,
  tensorBytes,
  type TensorType,
} from "../../graph/types.ts";
import { Uses } from "../../graph/uses.ts";
import type { Value } from "../../graph/value.ts";
import type { HostTensor } from "../device.ts";
import type { ProductShape } from "./driver/cublaslt.ts";
import type { Kernel, Sizes } from "./kernels/define.ts";
import {
  copy,
  copyScalars,
  dense,
  elementwise,
  type ElementwiseOp,
  elementwiseScalars,
  type Walk,
} from "./kernels/strided.ts";
import type { ComputeType } from "./memory.ts";

/** Source of a pointer of a launch. */
export type Pointer = { readonly from: "inputs" | "outputs"; readonly index: number } | null;

/** One kernel launch, but for addresses. */
export interface KernelLaunch {
  readonly kernel: Kernel;
  readonly defines: Sizes;
  readonly pointers: Readonly<Record<string, Pointer>>;
  readonly scalars: Sizes;
}

/** Attributes of a lowered node: a launch, a product of the library, or zeros; nothing for a view. */
export type Step = {
  readonly launch?: KernelLaunch;
  readonly product?: ProductShape;
  readonly zeros?: number;
};

/** The arguments of a launch by name. */
export interface LaunchSpec {
  readonly reads?: Readonly<Record<string, Value | undefined>>;
  /** New results; undefined where the kernel is not to write one. */
  readonly writes?: Readonly<Record<string, TensorType | undefined>>;
  /** Values that are overwritten in place. */
  readonly updates?: Readonly<Record<string, Value>>;
  readonly scalars: Sizes;
  readonly defines?: Sizes;
  /** The read whose memory the first result may take. */
  readonly reuse?: string;
}

/** Elements that `copy` moves, in their own order and densely where nothing else is said. */
export interface CopySpec {
  /** Sizes of what is moved, which both walks go through. */
  readonly shape?: Shape;
  readonly from?: Walk;
  readonly at?: Walk;
  /** The result, where it is more than what is moved; or the value that gets it. */
  readonly to?: TensorType;
  readonly target?: Value | undefined;
}

/** A program as this device runs it. */
export interface Lowered {
  readonly program: Program;
  /** Constant weights and their types, by the parameters of `program` they are bound to. */
  readonly weights: ReadonlyMap<string, { readonly name: string; readonly dtype: ComputeType }>;
  readonly constants: ReadonlyMap<string, HostTensor>;
}

/** A program while it is lowered; passed to every rule. */
export class Lowering {
  /** The compute dtype. */
  readonly dtype: ComputeType;
  /** Readers of each value in the program that is lowered, for rules that take several nodes at once. */
  readonly uses: Uses;
  readonly #source: Program;
  readonly #g: Builder;
  /** From values of the source to those of the result. */
  readonly #values = new Map<Value, Value>();
  /** Constant weights; each becomes a parameter of the result at its first use. */
  readonly #fixed = new Map<Value, string>();
  readonly #casts = new Map<Value, Value>();
  readonly #shared = new Map<string, readonly Value[]>();
  /** By lowered value that was computed in the memory of another, that one. */
  readonly #places = new Map<Value, Value>();
  /** Lowered values in memory of their own: no views, no state, nothing from outside. */
  readonly #fresh = new Set<Value>();
  readonly #weights = new Map<string, { name: string; dtype: ComputeType }>();
  readonly #constants = new Map<string, HostTensor>();

  constructor(source: Program, dtype: ComputeType, isFixed: (name: string) => boolean) {
    this.#source = source;
    this.uses = new Uses(source);
    this.dtype = dtype;
    this.#g = new Builder(source.name);
    for (const [name, value] of source.inputs) this.#values.set(value, this.#g.input(name, value));
    for (const [name, value] of source.state) this.#values.set(value, this.#g.state(name, value));
    for (const [name, value] of source.parameters) {
      if (isFixed(name)) this.#fixed.set(value, name);
      else this.#values.set(value, this.#g.parameter(name, value));
    }
  }

  /** Records the lowered form of a value of the source. */
  set(value: Value, lowered: Value): void {
    this.#values.set(value, lowered);
  }

  /** The lowered program, once all its nodes are. */
  finish(): Lowered {
    for (const [name, value] of this.#source.updates) this.#g.update(name, this.get(value));
    // Every output gets memory of its own, in its own type.
    for (const [name, value] of this.#source.outputs) {
      const found = value.dtype === "f32" ? this.f32(value) : this.get(value);
      const own = this.#fresh.has(found) ? found : this.copy(found);
      this.#fresh.delete(own); // the next name of the same value gets a copy
      this.#g.output(name, own);
    }
    const program = dropUnread(this.#g.build());
    return { program, weights: this.#weights, constants: this.#constants };
  }

  /** A value as it was computed, in whatever type; a constant weight in the compute dtype. */
  get(value: Value): Value {
    const known = this.#values.get(value);
    if (known) return known;
    if (this.#fixed.has(value)) return this.#weight(value, this.dtype);
    throw new TypeError(`cannot lower value ${value.id}: it has no origin`);
  }

  /** A value in the compute dtype. */
  operand(value: Value): Value {
    return this.#fixed.has(value) ? this.get(value) : this.cast(this.get(value), this.dtype);
  }

  /** A value in f32. */
  f32(value: Value): Value {
    return this.#fixed.has(value) ? this.#weight(value, "f32") : this.cast(this.get(value), "f32");
  }

  /** A lowered value in one of the two types. */
  cast(value: Value, dtype: ComputeType): Value {
    if (value.dtype === dtype) return value;
    if (value.dtype !== "f32" && value.dtype !== "bf16") {
      throw new TypeError(`cannot compute with ${formatType(value)}: its elements are not floats`);
    }
    const op = dtype === "f32" ? "bf16 to f32" : "f32 to bf16";
    return this.#casts.getOrInsertComputed(
      value,
      () => this.elementwise(op, [value], { dtype, shape: value.shape }),
    );
  }

  /** A copy of an operand in f32, to be changed where it lies. */
  ownCopy(value: Value): Value {
    return this.copy(this.f32(value));
  }

  /**
   * Computes once what rules ask for by the same name and values of the source: a
   * statistic, such as the normalizer of attention, that the gradient of an op reads again.
   */
  shared(name: string, values: readonly Value[], make: () => readonly Value[]): readonly Value[] {
    const key = [name, ...values.map(({ id }) => id)].join();
    return this.#shared.getOrInsertComputed(key, make);
  }

  /**
   * The state in whose memory a value of the source can be computed, since it becomes its content and nothing
   * reads the old content any more: else the state needs a temporary of its size, and a copy.
   */
  target(value: Value): Value | undefined {
    const { uses } = this, maker = uses.maker(value)!;
    const [reader, ...others] = uses.readers(value);
    if (others.length > 0 || uses.isResult(value) || !isNode(reader, assign)) return undefined;
    const [state, assigned] = reader.inputs;
    const isReadLater = uses.readers(state).some((node) =>
      node !== reader && uses.isAfter(node, maker)
    );
    const target = this.get(state);
    return assigned === value && !isReadLater && target.dtype === value.dtype ? target : undefined;
  }

  /** Returns whether a lowered value was computed in the memory of another. */
  isIn(value: Value, other: Value): boolean {
    return this.#places.get(value) === other;
  }

  /** The type of a tensor in the compute dtype. */
  type(shape: Shape): TensorType {
    return { dtype: this.dtype, shape };
  }

  /** Launches a kernel; the results are first those updated, then those written, in order. */
  launch(kernel: Kernel, spec: LaunchSpec): Value[] {
    const { reads = {}, writes = {}, updates = {}, scalars, defines = {}, reuse } = spec;
    const inputs: Value[] = [];
    const pointers: Record<string, Pointer> = {};
    const read = (name: string, value: Value | undefined) => {
      pointers[name] = value ? { from: "inputs", index: inputs.length } : null;
      if (value) inputs.push(value);
    };
    for (const [name, value] of Object.entries(updates)) read(name, value);
    if (reuse) read(reuse, reads[reuse]); // first, where the memory plan looks for it
    for (const { name } of kernel.arguments) {
      if (name in reads && name !== reuse) read(name, reads[name]);
    }
    const types: TensorType[] = Object.values(updates);
    for (const [name, type] of Object.entries(writes)) {
      pointers[name] = type ? { from: "outputs", index: types.length } : null;
      if (type) types.push(type);
    }
    const missing = kernel.arguments.find(({ name, type }) =>
      type === "pointer" && !(name in pointers)
    );
    if (missing) {
      throw new TypeError(`cannot launch ${kernel.entry}: argument "${missing.name}" is not set`);
    }
    const all: Record<string, number> = { BF16: Number(this.dtype === "bf16"), ...defines };
    const used = Object.keys(kernel.file.specialisations[0]!);
    const own = Object.fromEntries(used.map((name) => [name, all[name] ?? 0]));
    const launch = { kernel, defines: own, pointers, scalars };
    const memory = Object.keys(updates).length > 0 ? "required" : reuse ? "allowed" : undefined;
    return this.#step(kernel.entry, { launch }, inputs, types, memory);
  }

  /** D = op(A) op(B) by the library, with a bias over the rows of D if there is one. */
  product(
    sizes: Omit<ProductShape, "input" | "output" | "bias">,
    [a, b, bias]: readonly [Value, Value, Value?],
    d: TensorType,
  ): Value {
    const types = { input: this.dtype, output: d.dtype as ComputeType };
    const product = { ...sizes, ...types, bias: !!bias };
    return this.#step("product", { product }, bias ? [a, b, bias] : [a, b], [d])[0]!;
  }

  zeros(type: TensorType): Value {
    return this.#step("zeros", { zeros: tensorBytes(type) }, [], [type])[0]!;
  }

  /** The same bytes under another shape. */
  view(value: Value, shape: Shape): Value {
    return this.#step("view", {}, [value], [{ dtype: value.dtype, shape }], "view")[0]!;
  }

  /** A tensor whose elements are known. */
  constant(tensor: HostTensor): Value {
    const name = `constant.${this.#constants.size}`;
    this.#constants.set(name, tensor);
    return this.#g.parameter(name, tensor);
  }

  /** y = op(a, b, c) for each element, into `target` or else a new tensor. */
  elementwise(op: ElementwiseOp, operands: readonly Value[], y: TensorType, target?: Value): Value {
    const [a, b, c] = operands;
    // In place only where a is walked as the result is.
    const reuses = !target && a?.dtype === y.dtype && a.shape.join() === y.shape.join();
    return this.launch(elementwise, {
      reads: { a, b, c },
      ...(target ? { updates: { y: target } } : { writes: { y } }),
      scalars: elementwiseScalars(op, y.shape, operands.map(({ shape }) => shape)),
      ...(reuses && { reuse: "a" }),
    })[0]!;
  }

  /** Moves elements by `copy` of movement.cu. */
  copy(source: Value, spec: CopySpec = {}): Value {
    const { shape = source.shape, from = dense(shape), at = dense(shape), target } = spec;
    const { to = { dtype: source.dtype, shape } } = spec;
    return this.launch(copy, {
      reads: { x: source },
      ...(target ? { updates: { y: target } } : { writes: { y: to } }),
      scalars: copyScalars(shape, at, from),
      defines: { BYTES: elementBytes(source.dtype) },
    })[0]!;
  }

  #step(
    name: string,
    step: Step,
    inputs: readonly Value[],
    types: readonly TensorType[],
    memory?: "view" | "allowed" | "required",
  ): Value[] {
    const results = this.#g.apply({ name, infer: () => types, memory }, inputs, step);
    results.forEach((value, i) => {
      const own = memory === "required" ? this.#fresh.has(inputs[i]!) : memory !== "view";
      if (own) this.#fresh.add(value);
      if (memory === "required") this.#places.set(value, inputs[i]!);
    });
    return results;
  }

  #weight(value: Value, dtype: ComputeType): Value {
    const name = this.#fixed.get(value)!;
    this.#weights.set(`${name}#${dtype}`, { name, dtype });
    return this.#g.parameter(`${name}#${dtype}`, { dtype, shape: value.shape });
  }
}
