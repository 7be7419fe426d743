/** The programs of the bring-up, small but with everything that kernels tell apart, and numbers for them. */
import { RandomStream } from "../base/random.ts";
import { samplingNumbers } from "../base/sampling.ts";
import { Builder } from "../graph/builder.ts";
import { differentiate } from "../graph/differentiate.ts";
import type { Program } from "../graph/program.ts";
import { elementCount, type TensorType } from "../graph/types.ts";
import type { ModelConfig } from "../model/config.ts";
import { buildForward } from "../model/forward.ts";
import { scratchValues } from "../model/init.ts";
import { buildLoss } from "../model/loss.ts";
import { parameterSpecs } from "../model/parameters.ts";
import type { ComputeType } from "../runtime/cuda/memory.ts";
import type { HostTensor } from "../runtime/device.ts";
import { buildSquaredNorm, buildUpdate } from "../train/optimizer.ts";

/** Head sizes of the models in use, for which kernels are compiled one by one. */
export const HEAD_DIMS = [64, 128];

/** A small model with everything that the kernels tell apart: biases, grouped heads, streams, prefixes. */
export function tinyConfig(headDim: number): ModelConfig {
  return {
    ...{ family: "qwen2", vocabSize: 157, hiddenSize: 64, intermediateSize: 96 },
    ...{ numHiddenLayers: 2, numAttentionHeads: 6, numKeyValueHeads: 2, headDim },
    ...{ rmsNormEps: 1e-6, ropeTheta: 1e4, maxPositionEmbeddings: 512 },
    ...{ tieWordEmbeddings: true, attentionBias: true, outputBias: false, mlpBias: false },
    ...{ dtype: "f32", eosTokenIds: [], streams: 2, prefix: true, prefixTokens: 5 },
    ...{ loraRank: 0, bitfit: false, smoothing: 0.1, aggregator: "dynamic" },
  };
}

export function tinyWeights(config: ModelConfig): Map<string, HostTensor> {
  return new Map(
    parameterSpecs(config).map((spec): [string, HostTensor] => {
      const values = scratchValues({ ...spec, introduced: false }, config, 0, 0.2);
      return [spec.name, { dtype: "f32", shape: spec.shape, data: values }];
    }),
  );
}

/** A program with numbers for its inputs, parameters and states. */
export interface KernelProgram {
  readonly program: Program;
  readonly data: ReadonlyMap<string, ArrayLike<number>>;
}

/** Programs that together launch the kernels of inference and training. */
export function kernelPrograms(headDim: number, cacheType: ComputeType): KernelProgram[] {
  const config = tinyConfig(headDim), eight = { ...config, streams: 8 };
  const prompt = { batch: 1, tokens: 40, capacity: 96, selected: 3 };
  const token = { batch: 2, tokens: 1, capacity: 136, selected: 2 };
  const loss = buildLoss(config, { batch: 1, tokens: 22 });
  const once = [
    buildUpdate([200, 7], { beta1: 0.9, beta2: 0.95, epsilon: 1e-8 }),
    buildSquaredNorm([20_000, 7]),
    slotWrites(cacheType),
  ];
  const programs = [
    buildForward(config, prompt, { head: "streams", cacheType }),
    buildForward(config, token, { head: "sample", cacheType, table: true }),
    differentiate(loss, { of: "loss", by: [...loss.parameters.keys()] }),
    ...(headDim === HEAD_DIMS[0] ? once : []),
  ];
  const alone = { ...token, batch: 1, selected: 1 };
  const decoding = buildForward(eight, alone, { head: "sample", cacheType });
  return [
    ...programs.map((program) => ({ program, data: numbersFor(program, config) })),
    { program: decoding, data: numbersFor(decoding, eight) },
  ];
}

/** Writes into a cache of another type than the model computes in, which are apart from rope. */
function slotWrites(cacheType: ComputeType): Program {
  const g = new Builder("write_slots");
  const cache = g.state("keys", { dtype: cacheType, shape: [2, 3, 80, 64] });
  const update = g.input("update", { dtype: cacheType, shape: [2, 3, 2, 64] });
  const start = g.input("start", { dtype: "i32", shape: [2] });
  g.update("keys", cache.writeSlots(update, start));
  return g.build();
}

/** Numbers for the inputs, parameters and states of a program, by their meaning. */
function numbersFor(program: Program, config: ModelConfig): Map<string, ArrayLike<number>> {
  const random = new RandomStream(0, program.name);
  const weights = tinyWeights(config);
  const [batch = 1, tokens = 1] = program.inputs.get("ids")?.shape ?? [];
  const numbers = (name: string, { shape }: TensorType): ArrayLike<number> => {
    const known = weights.get(name);
    if (known) return known.data;
    const list = (value: (i: number) => number) =>
      Array.from({ length: elementCount(shape) }, (_, i) => value(i));
    const past = tokens === 1 ? 70 : 30;
    switch (name) {
      case "ids":
      case "targets":
        return list(() => random.integer(config.vocabSize));
      case "start":
        return list(() => past);
      case "positions": // of a row that begins with its text, or of documents of nine tokens
        return list((i) => program.inputs.has("start") ? past + i % tokens : i % tokens % 9);
      case "select":
        return list((i) => batch * tokens - 1 - i);
      case "table":
        return list((i) => Math.floor(i / shape[1]!));
      case "predicted":
        return list((i) => Number(i % 5 > 0));
      case "sampling":
        return list(() => 0).map((_, i) => SAMPLING[i % SAMPLING.length]!);
    }
    if (/^(v|correction)/.test(name)) return list(() => random.uniform() + 0.5);
    return list(() => random.normal());
  };
  return new Map(
    [program.inputs, program.parameters, program.state].flatMap((given) =>
      [...given].map(([name, type]) => [name, numbers(name, type)] as const)
    ),
  );
}

const SAMPLING = samplingNumbers({ temperature: 1, topK: 40, topP: 0.9, minP: 0.01 }, {
  uniform: () => 0.37,
});
