/** Trained parameters, their rates and weight decay. */
import { assertEquals } from "@std/assert";
import { groupTensors, isFixed } from "../../../core/train/trainable.ts";

/** Kind of the rate and whether there is weight decay, by tensor. */
const TENSORS: Readonly<
  Record<string, readonly [shape: number[], rate: string, decayed: boolean]>
> = {
  "model.embed_tokens.weight": [[8, 4], "backbone", true],
  "model.norm.weight": [[4], "backbone", false],
  "model.layers.0.self_attn.q_proj.bias": [[4], "backbone", false],
  "model.layers.0.self_attn.prefix_k": [[2, 1, 3, 4], "prefix", true],
  "model.layers.0.self_attn.q_proj.lora_a": [[2, 4, 2], "prefix", true],
  "model.layers.0.self_attn.q_proj.stream_bias": [[2, 4], "prefix", false],
  "model.aggregate_layer.0.weight": [[4, 8], "aggregator", true],
  "model.aggregate_layer.2.bias": [[2], "aggregator", false],
};

Deno.test("biases of streams and of layers, and norms, have no weight decay", () => {
  const specs = Object.entries(TENSORS).map(([name, [shape]]) => ({ name, shape }));
  const found = groupTensors(specs).flatMap(({ tensors, rate, decayed }) =>
    tensors.map(({ name, shape }) => [name, [shape, rate, decayed]])
  );
  assertEquals(Object.fromEntries(found), { ...TENSORS });
});

Deno.test("static weights train the last bias of the aggregator alone, an average nothing", () => {
  const fixed = (aggregation: "dynamic" | "static" | "average") =>
    Object.keys(TENSORS).filter((name) => isFixed(name, aggregation));
  assertEquals(fixed("dynamic"), []);
  assertEquals(fixed("static"), ["model.aggregate_layer.0.weight"]);
  assertEquals(fixed("average"), [
    "model.aggregate_layer.0.weight",
    "model.aggregate_layer.2.bias",
  ]);
});
