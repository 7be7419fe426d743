/**
 * Program → ONNX model, written once for all sizes.
 *
 * What depends on sizes (targets of a reshape, an index range) becomes an input that is bound once per
 * executable instead of a number in the model. Programs of one model that differ only in batch, tokens
 * or capacity therefore lower to equal bytes, and the device runs them on one session with one copy of
 * the packed weights. Should two sizes coincide and change which nodes are equal, the bytes differ and
 * cost a second session, never a wrong result.
 */
import type { AttributesOf, PrimitiveName } from "../../../graph/primitives.ts";
import type { Node, Op, Program } from "../../../graph/program.ts";
import {
  type Attributes,
  elementCount,
  type Operands,
  type RulesByName,
  type Shape,
} from "../../../graph/types.ts";
import type { Value } from "../../../graph/value.ts";
import { softmax } from "../../../ops/softmax.ts";
import type { Weight, Weights } from "../../device.ts";
import { matrixFormatOf } from "../../weights.ts";
import { ONNX_TYPE, type OnnxType } from "../element_types.ts";
import type { MatrixFormat } from "../../../quant/codes.ts";
import { type FilePlace, OnnxModel } from "./model.ts";
import { directUpdates, requireReadersFirst, writersOf } from "./state_updates.ts";

/**
 * Form of a weight in a session. `stored`: the bytes of the checkpoint; `f32`: cast; `matrix`:
 * f32 that the session packs and never reads again; `blocks`, `scales` and `offsets`: quantised; `table`
 * and `table scales`: the same in the shapes of an embedding table.
 */
export type WeightForm =
  | "stored"
  | "f32"
  | "matrix"
  | "blocks"
  | "scales"
  | "offsets"
  | "table"
  | "table scales";

/** One initializer of the model; one weight may be needed in two forms. */
export interface WeightUse {
  /** Name of the parameter. */
  readonly parameter: string;
  readonly form: WeightForm;
  readonly type: OnnxType;
  readonly shape: Shape;
  /** True if a node depends on weights alone: the library computes it once, when it optimizes. */
  readonly isFolded?: boolean;
}

/**
 * Adds the operators that compute a node, the last of which names its result `output`, and its further
 * results `others`.
 */
export type Rule<A extends Attributes = Attributes> = (
  l: Lowering,
  inputs: Operands<Value>,
  attributes: A,
  output: string,
  others: readonly string[],
) => void;

/** The rule of the primitive `N`. */
export type RuleOf<N extends PrimitiveName> = Rule<AttributesOf<N>>;

/** A rule of each primitive. */
export type PrimitiveRules = { readonly [N in PrimitiveName]: RuleOf<N> };

/** The execution provider that programs are lowered for. */
export interface Target {
  /** Rules by op name. */
  readonly rules: RulesByName<Rule>;
  /** True if an elementwise result may lie in the memory of an operand. */
  readonly writesOverOperands: boolean;
}

/** Weights and choices that lowering depends on. */
export interface LoweringOptions {
  /** Weights of the model; a parameter that is none of them is free, that is, an input. */
  readonly weights: Weights;
  /** Format of matrices that have none of their own. */
  readonly matrices: MatrixFormat;
  /** True to compute a single row as several are; see `Lowering.doublesRows`. */
  readonly alikeRows?: boolean | undefined;
  readonly target: Target;
  /** Returns the place of a weight in a file; undefined when it is given in memory. */
  readonly place?: (use: WeightUse) => WeightPlace | undefined;
  /** Makes the model for the sizes of this program alone, with nothing to be bound besides. */
  readonly fixedSizes?: boolean;
  /** Sorts the nodes, for a file that others read. */
  readonly sorted?: boolean;
  /** A file that exists beside those of `place`, named where a weight is given in memory. */
  readonly placeholder?: string;
}

/** A weight in a file. */
export interface WeightPlace {
  readonly at: FilePlace;
  /** Element type in the file; a matrix of another one is cast when the session is made. */
  readonly type: OnnxType;
}

/** A tensor that depends on the sizes of a program, bound as an input. */
export interface SizeInput {
  readonly type: "i64" | "i32" | "f32";
  readonly data: readonly number[];
}

/** Arrays of size inputs, as the library takes them. */
export const SIZE_ARRAYS = {
  i64: (data: readonly number[]) => BigInt64Array.from(data, BigInt),
  i32: (data: readonly number[]) => Int32Array.from(data),
  f32: (data: readonly number[]) => Float32Array.from(data),
};

/** A program as ONNX Runtime takes it. */
export interface Lowered {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Initializers to be given in memory, by name. */
  readonly weights: ReadonlyMap<string, WeightUse>;
  /** Weights that the library reads from files, by name, in the form in which it keeps them. */
  readonly fileWeights: ReadonlyMap<string, WeightUse>;
  /** Inputs bound once per executable. */
  readonly sizes: ReadonlyMap<string, SizeInput>;
}

/** Returns whether a target's lowering knows an op; others are expanded first. */
export function lowers(op: Op, { rules }: Target): boolean {
  return op.name in rules;
}

/** Name under which the new content of a state tensor leaves the model. */
export function updateName(state: string): string {
  return `new.${state}`;
}

/** Lowers a prepared program, one that consists of ops which `lowers` accepts. */
export function lower(program: Program, options: LoweringOptions): Lowered {
  const lowering = new Lowering(program, options);
  return lowering.run();
}

/** Least ratio of all elements of coded matrices to those in 4 bits for `doublesRows`. */
const DOUBLED_SHARE = 8;

/** A program on its way to ONNX; passed to every lowering rule. */
export class Lowering {
  readonly model: OnnxModel;
  readonly options: LoweringOptions;
  readonly #names = new Map<Value, string>();
  /** Names of the outputs. */
  readonly #leaving = new Map<Value, string>();
  readonly #parameters = new Map<Value, string>();
  readonly #folded: ReadonlySet<Value>;
  readonly #weights = new Map<string, WeightUse>();
  readonly #fileWeights = new Map<string, WeightUse>();
  readonly #sizes = new Map<string, SizeInput>();
  /** Names of things made at most once: constants and casts. */
  readonly #made = new Map<string, string>();

  constructor(private readonly program: Program, options: LoweringOptions) {
    this.options = options;
    this.model = new OnnxModel(options.placeholder);
    for (const [name, value] of program.parameters) {
      if (options.weights.has(name)) this.#parameters.set(value, name);
    }
    this.#folded = foldedWeights(program, this.#parameters.keys());
  }

  run(): Lowered {
    const { model } = this;
    const { inputs, parameters, state, updates, outputs, nodes } = this.program;
    const { rules, writesOverOperands } = this.options.target;
    const writers = writersOf(this.program);
    requireReadersFirst(this.program, writers);
    const free = [...parameters].filter(([, value]) => !this.isParameter(value));
    for (const [name, value] of [...inputs, ...free, ...state]) {
      this.#names.set(value, model.input(name, value.dtype, this.#sizesOf(value)));
    }
    const leaving: [string, Value][] = [...outputs];
    for (const [name, value] of updates) leaving.push([updateName(name), value]);
    for (const [name, value] of leaving) this.#leaving.set(value, name);
    const skipped = new Map<Value, Value>();
    const direct = writesOverOperands ? directUpdates(this.program, writers) : [];
    for (const [name, { assigned, source }] of direct) {
      this.#leaving.delete(assigned);
      this.#leaving.set(source, updateName(name));
      skipped.set(assigned, source);
    }
    for (const { op, inputs, attributes, outputs } of nodes) {
      const [value, ...rest] = outputs as [Value, ...Value[]];
      const source = skipped.get(value);
      const output = source ? this.get(source) : this.#nameOf(value);
      const others = rest.map((other) => this.#nameOf(other));
      if (!source) rules[op.name]!(this, inputs as Operands<Value>, attributes, output, others);
      this.#names.set(value, output);
      rest.forEach((other, i) => this.#names.set(other, others[i]!));
    }
    for (const [name, value] of leaving) {
      const source = this.get(value);
      if (source !== name) model.node("Identity", [source], {}, { output: name });
      model.output(name, value.dtype, this.#sizesOf(value));
    }
    const [weights, fileWeights] = [this.#weights, this.#fileWeights];
    const sizes = this.options.fixedSizes ? new Map() : this.#sizes;
    return { bytes: model.finish(this.options), weights, fileWeights, sizes };
  }

  /** Name of a value; a parameter is declared as plain f32. */
  get(value: Value): string {
    const known = this.#names.get(value);
    if (known) return known;
    if (!this.isParameter(value)) throw new TypeError(`cannot lower value ${value.id}: no origin`);
    return this.weight(value, "f32", "f32", value.shape);
  }

  /** Names of all inputs of a node. */
  operands(inputs: Operands<Value>): Operands<string> {
    const names: readonly string[] = inputs.map((value) => this.get(value));
    return names as Operands<string>;
  }

  /**
   * Name of the softmax of a value, where the program has it; the node may come later, since the
   * library sorts them.
   */
  softmaxOf(value: Value): string | undefined {
    const same = (node: Node) => softmax.of(node)?.inputs.x === value;
    const result = this.program.nodes.find(same)?.outputs[0];
    return result && this.#nameOf(result);
  }

  /** Returns whether a value is a constant weight, whose form a rule may choose. */
  isParameter(value: Value): boolean {
    return this.#parameters.has(value);
  }

  /** The weight of a parameter; undefined for any other value. */
  weightOf(value: Value): Weight | undefined {
    const name = this.#parameters.get(value);
    return name === undefined ? undefined : this.options.weights.get(name);
  }

  /** Returns the format of a parameter's matrix. */
  formatOf(value: Value): MatrixFormat {
    return matrixFormatOf(this.weightOf(value), this.options.matrices);
  }

  /**
   * True if a single row is multiplied by a 4-bit matrix as two rows. The library's kernel for one row rounds
   * differently, so that results would depend on the number of rows. Two rows take 1.4 times as long as one:
   * only where it is asked for, and for files with few such matrices, as Q4_K_M files of models whose rows
   * have 896 elements.
   */
  get doublesRows(): boolean {
    if (this.options.alikeRows) return true;
    const sums = { q8: 0, q4: 0 };
    for (const weight of this.options.weights.values()) {
      const format = "format" in weight ? weight.format : undefined;
      if (format) sums[format.kind] += elementCount(weight.shape);
    }
    return sums.q4 * DOUBLED_SHARE < sums.q4 + sums.q8;
  }

  /** Declares a weight in some form and returns the initializer's name. */
  weight(value: Value, form: WeightForm, type: OnnxType, shape: Shape): string {
    const parameter = this.#parameters.get(value)!;
    const name = `${parameter}#${form}`;
    if (this.#weights.has(name) || this.#fileWeights.has(name)) return name;
    const use = { parameter, form, type, shape, isFolded: this.#folded.has(value) };
    const place = this.options.place?.(use);
    (place ? this.#fileWeights : this.#weights).set(name, use);
    if (!place || place.type === type) return this.model.weight(name, type, shape, place?.at);
    const narrow = this.model.weight(`${name}.narrow`, place.type, shape, place.at);
    return this.model.node("Cast", [narrow], { to: ONNX_TYPE[type] }, { output: name });
  }

  /** An i64 constant that is the same for all sizes. */
  longs(...values: number[]): string {
    const name = `longs.${values.join("_")}`;
    return this.#made.getOrInsertComputed(
      name,
      () => this.model.constant(name, "i64", [values.length], BigInt64Array.from(values, BigInt)),
    );
  }

  /** A number that is the same for all sizes. */
  number(value: number): string {
    const name = `number.${value}`;
    return this.#made.getOrInsertComputed(
      name,
      () => this.model.constant(name, "f32", [], Float32Array.of(value)),
    );
  }

  /** Sums of a matrix over each `block` of its columns, made once. */
  blockSums(x: string, block: number): string {
    return this.#made.getOrInsertComputed(`sums.${block}.${x}`, () => {
      const blocks = this.model.node("Reshape", [x, this.longs(0, -1, block)]);
      return this.model.node("ReduceSum", [blocks, this.longs(2)], { keepdims: 0 });
    });
  }

  /** A tensor in another element type; made once. */
  as(type: "i64" | "f16", name: string): string {
    const to = ONNX_TYPE[type];
    return this.#made.getOrInsertComputed(
      `${type}.${name}`,
      () => this.model.node("Cast", [name], { to }),
    );
  }

  /**
   * An input that is bound once per executable. Equal ones are not shared: whether two are equal
   * may depend on the sizes, and would make the model depend on them too.
   */
  size(input: SizeInput): string {
    const name = `size.${this.#sizes.size}`;
    this.#sizes.set(name, input);
    const { type, data } = input;
    if (!this.options.fixedSizes) return this.model.input(name, type, [undefined]);
    return this.model.constant(name, type, [data.length], SIZE_ARRAYS[type](data));
  }

  /** Declared sizes: those of the program where the model is for them alone. */
  #sizesOf({ shape }: Value): readonly (number | undefined)[] {
    return shape.map((size) => this.options.fixedSizes ? size : undefined);
  }

  #nameOf(value: Value): string {
    return this.#leaving.get(value) ?? `v${value.id}`;
  }
}

/** Weights that nodes read which depend on nothing else. */
function foldedWeights({ nodes }: Program, weights: Iterable<Value>): ReadonlySet<Value> {
  const own = new Set(weights), fixed = new Set(own), folded = new Set<Value>();
  for (const { inputs, outputs } of nodes) {
    if (!inputs.every((value) => fixed.has(value))) continue;
    for (const value of outputs) fixed.add(value);
    for (const value of inputs) if (own.has(value)) folded.add(value);
  }
  return folded;
}
