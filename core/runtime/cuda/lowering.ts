/**
 * What the rules of `kernels/` lower a program with: types of operands, launches, weights, constants.
 *
 * The result is a program whose nodes are launches of kernels and library products, so that its memory
 * plan is exactly what the device will use. Temporaries of a rule, such as partial sums, are values like
 * all others.
 *
 * Numbers are in one of two types. `element` is what the model computes in, bf16 or f32; `wide` is f32,
 * for statistics, losses, and gradients of parameters. A rule asks for its operands in the type that
 * its kernel reads, and a cast is made where they are not in it; a fixed weight is uploaded in each
 * type that is asked for, and never cast.
 */
import { Builder } from "../../graph/builder.ts";
import { dropUnread } from "../../graph/rewrite.ts";
import type { Program } from "../../graph/program.ts";
import {
  elementBytes,
  elementCount,
  formatType,
  type Shape,
  type TensorType,
} from "../../graph/types.ts";
import type { Value } from "../../graph/value.ts";
import type { HostTensor } from "../device.ts";
import type { Kernel } from "./kernels/define.ts";
import { copy, narrowFloats, widenElements } from "./kernels/moves.ts";
import type { ArgumentType } from "./driver/launch.ts";
import type { Choices, LaunchSpec, Lowered, Pointer, Step, WeightUse } from "./lowered.ts";
import type { ProductShape } from "./driver/cublaslt.ts";
import { dense, type Layout } from "./strides.ts";
import type { ElementType } from "./tensor.ts";

/** A program on its way to launches; passed to every rule. */
export class Lowering {
  readonly elementType: ElementType;
  readonly choices: Choices;
  readonly #source: Program;
  readonly #g: Builder;
  /** From values of the source to those of the result. */
  readonly #values = new Map<Value, Value>();
  /** Fixed weights, which become parameters of the result when they are asked for. */
  readonly #fixed = new Map<Value, string>();
  readonly #casts = new Map<Value, Value>();
  /** Lowered values in memory of their own: no views, no state, nothing from outside. */
  readonly #fresh = new Set<Value>();
  readonly #weights = new Map<string, WeightUse>();
  readonly #constants = new Map<string, HostTensor>();

  constructor(
    source: Program,
    elementType: ElementType,
    fixed: (name: string) => boolean,
    choices: Choices,
  ) {
    [this.#source, this.elementType, this.choices] = [source, elementType, choices];
    this.#g = new Builder(source.name);
    for (const [name, value] of source.inputs) this.#values.set(value, this.#g.input(name, value));
    for (const [name, value] of source.state) this.#values.set(value, this.#g.state(name, value));
    for (const [name, value] of source.parameters) {
      if (fixed(name)) this.#fixed.set(value, name);
      else this.#values.set(value, this.#g.parameter(name, value));
    }
  }

  /** Says what a value of the source was lowered to. */
  set(value: Value, lowered: Value): void {
    this.#values.set(value, lowered);
  }

  /** The lowered program, once all its nodes are. */
  finish(): Lowered {
    for (const [name, value] of this.#source.updates) this.#g.update(name, this.get(value));
    this.#nameOutputs();
    const program = dropUnread(this.#g.build());
    return { program, weights: this.#weights, constants: this.#constants };
  }

  /** A value as it was computed, in whatever type; a fixed weight as an element. */
  get(value: Value): Value {
    const known = this.#values.get(value);
    if (known) return known;
    if (this.#fixed.has(value)) return this.#weight(value, this.elementType);
    throw new TypeError(`cannot lower value ${value.id}: it has no origin`);
  }

  /** A value in the type that the model computes in. */
  element(value: Value): Value {
    return this.#fixed.has(value)
      ? this.#weight(value, this.elementType)
      : this.inType(this.get(value), this.elementType);
  }

  /** A value in f32. */
  wide(value: Value): Value {
    return this.#fixed.has(value)
      ? this.#weight(value, "f32")
      : this.inType(this.get(value), "f32");
  }

  /** A lowered value in one of the two types. */
  inType(value: Value, dtype: ElementType): Value {
    if (value.dtype === dtype) return value;
    if (value.dtype !== "f32" && value.dtype !== "bf16") {
      throw new TypeError(`cannot compute with ${formatType(value)}: its elements are not floats`);
    }
    const known = this.#casts.get(value);
    if (known) return known;
    const [made] = this.launch(dtype === "f32" ? widenElements : narrowFloats, {
      reads: { x: value },
      writes: { y: { dtype, shape: value.shape } },
      numbers: { count: elementCount(value.shape) },
      macros: { BF16: 1 },
    });
    this.#casts.set(value, made!);
    return made!;
  }

  /** The type of an element tensor. */
  elements(shape: Shape): TensorType {
    return { dtype: this.elementType, shape };
  }

  /** Launches a kernel; the results are first what is updated, then what is written, in order. */
  launch(kernel: Kernel, spec: LaunchSpec): Value[] {
    const { reads = {}, writes = {}, updates = {}, numbers, macros = {}, reuse } = spec;
    const inputs: Value[] = [];
    const pointers: Record<string, Pointer> = {};
    const read = (name: string, value: Value | undefined) => {
      pointers[name] = value ? { from: "inputs", index: inputs.length } : null;
      if (value) inputs.push(value);
    };
    for (const [name, value] of Object.entries(updates)) read(name, value);
    if (reuse) read(reuse, reads[reuse]);
    for (const { name, type } of kernel.arguments) {
      if (isAddress(type) && name in reads && name !== reuse) read(name, reads[name]);
    }
    const types: TensorType[] = Object.values(updates);
    for (const [name, type] of Object.entries(writes)) {
      pointers[name] = type ? { from: "outputs", index: types.length } : null;
      if (type) types.push(type);
    }
    const missing = kernel.arguments.find(({ name, type }) =>
      isAddress(type) && !(name in pointers)
    );
    if (missing) {
      throw new TypeError(`cannot launch ${kernel.entry}: argument "${missing.name}" is not set`);
    }
    const all: Record<string, number> = { BF16: Number(this.elementType === "bf16"), ...macros };
    const used = Object.keys(kernel.file.specialisations[0]!);
    const own = Object.fromEntries(used.map((name) => [name, all[name] ?? 0]));
    const launch = { kernel, macros: own, pointers, numbers };
    const memory = Object.keys(updates).length > 0 ? "required" : reuse ? "allowed" : undefined;
    return this.#step(kernel.entry, { launch }, inputs, types, memory);
  }

  /** D = op(A) op(B) by the library, with a bias over the rows of D if there is one. */
  product(
    shape: ProductShape,
    [a, b, bias]: readonly [Value, Value, Value?],
    to: TensorType,
  ): Value {
    const inputs = bias ? [a, b, bias] : [a, b];
    return this.#step("product", { product: shape }, inputs, [to])[0]!;
  }

  /** Zeros. */
  zeros(type: TensorType): Value {
    const bytes = elementCount(type.shape) * elementBytes(type.dtype);
    return this.#step("zeros", { zeros: bytes }, [], [type])[0]!;
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

  /** Moves elements; see `copy` in movement.cu. Into `target` where it is given, else a new tensor. */
  copy(source: Value, to: TensorType, move: Layout, target?: Value): Value {
    const count = elementCount(move.sizes);
    const [n1, n2, n3] = move.sizes.slice(1);
    const strides = (letter: string, list: readonly number[]) =>
      Object.fromEntries(list.map((stride, i) => [`${letter}${i}`, stride]));
    return this.launch(copy, {
      reads: { x: source },
      ...(target ? { updates: { y: target } } : { writes: { y: to } }),
      numbers: {
        ...{ count, n1: n1!, n2: n2!, n3: n3! },
        ...{ yFirst: move.targetFirst, xFirst: move.sourceFirst },
        ...strides("y", move.targetStrides),
        ...strides("x", move.sourceStrides),
      },
      macros: { BYTES: elementBytes(source.dtype) },
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
    });
    return results;
  }

  #weight(value: Value, dtype: ElementType): Value {
    const name = this.#fixed.get(value)!;
    this.#weights.set(`${name}#${dtype}`, { name, dtype });
    return this.#g.parameter(`${name}#${dtype}`, { dtype, shape: value.shape });
  }

  /** Every output gets memory of its own, in its own type. */
  #nameOutputs(): void {
    for (const [name, value] of this.#source.outputs) {
      const found = value.dtype === "f32" ? this.wide(value) : this.get(value);
      const own = this.#fresh.has(found) ? found : this.copy(found, found, dense(found.shape));
      this.#fresh.delete(own); // the next name of the same value gets a copy
      this.#g.output(name, own);
    }
  }
}

/** A map is made from an address. */
function isAddress(type: ArgumentType): boolean {
  return type === "pointer" || type === "map";
}
