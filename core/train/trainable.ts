/**
 * Selects the parameters that are trained, and groups them by learning rate and weight decay.
 *
 * The paper has one rate; at small scale one shared rate hides what streams do, so prefixes and
 * aggregator may have their own. Decay applies to tensors of two or more dimensions, prefixes
 * included, and never to biases and norms.
 */
import type { Aggregator, ModelConfig } from "../model/config.ts";
import { elementCount, type ParameterSpec, parameterSpecs } from "../model/parameters.ts";

/** Learning rates are given per kind; what tells streams apart counts as prefix. */
export type RateKind = "backbone" | "prefix" | "aggregator";

/**
 * Aggregation of streams: by an aggregator of the model, by one learned weight per stream for all tokens
 * (static), or by their average. The last two are a dynamic aggregator with all tensors zero, of which
 * `static` trains the last bias, so that they are stored and run like any other ParScale model.
 */
export type Aggregation = Aggregator | "static" | "average";

/** The aggregator that a model needs for it. */
export function aggregatorFor(aggregation: Aggregation): Aggregator {
  return aggregation === "linear" ? "linear" : "dynamic";
}

/** Options that decide on the trained set. */
export interface TrainableOptions {
  /** Everything, or prefixes, other transformations and aggregator alone. */
  readonly params: "all" | "introduced";
  readonly aggregation: Aggregation;
}

/** One trained tensor. */
export interface TrainedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** Its first element among those of the group. */
  readonly start: number;
}

/** Tensors with the same rate and decay, concatenated into one array. */
export interface Group {
  readonly rate: RateKind;
  readonly decayed: boolean;
  readonly tensors: readonly TrainedTensor[];
  /** Elements of all tensors. */
  readonly count: number;
}

/** The parameters of a model that learn, in file order; may be none. */
export function trainableSpecs(config: ModelConfig, options: TrainableOptions): ParameterSpec[] {
  return parameterSpecs(config).filter(({ name, introduced }) =>
    (options.params === "all" || introduced) && !isFixed(name, options.aggregation)
  );
}

/** Returns whether a parameter is held at zero by the way streams are weighted. */
export function isFixed(name: string, aggregation: Aggregation): boolean {
  if (aggregation === aggregatorFor(aggregation) || !name.startsWith("model.aggregate_layer.")) {
    return false;
  }
  return aggregation === "average" || name !== "model.aggregate_layer.2.bias";
}

/** Sorts tensors into groups, keeping their order within each; `apart` gives each a group of its own. */
export function groupTensors(
  specs: readonly Pick<ParameterSpec, "name" | "shape">[],
  { apart = false } = {},
): Group[] {
  const groups = new Map<string, { -readonly [K in keyof Group]: Group[K] }>();
  for (const { name, shape } of specs) {
    const [rate, decayed] = [rateOf(name), isDecayed(name, shape)];
    const key = apart ? name : `${rate} ${decayed}`;
    const group = groups.get(key) ?? { rate, decayed, tensors: [], count: 0 };
    group.tensors = [...group.tensors, { name, shape, start: group.count }];
    group.count += elementCount(shape);
    groups.set(key, group);
  }
  return [...groups.values()];
}

function rateOf(name: string): RateKind {
  if (name.startsWith("model.aggregate_layer.")) return "aggregator";
  return /\.(prefix_(k|v|conv|state)|lora_[ab]|stream_bias)$|^prefix_mlp\./.test(name)
    ? "prefix"
    : "backbone";
}

function isDecayed(name: string, shape: readonly number[]): boolean {
  return shape.length > 1 && !name.endsWith("bias");
}
