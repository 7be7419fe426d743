/**
 * Writes the trained model into a checkpoint folder: all of it, or the introduced tensors alone as an
 * adapter beside an untouched backbone.
 *
 * Tensors are rounded once to the stored type; training continues in f32 (see `training_state.ts`).
 */
import { baseFields } from "../checkpoint/adapter_base.ts";
import { ADAPTER_FILE, CONFIG_FILE } from "../checkpoint/open.ts";
import { writeModelingCode } from "../convert/modeling_code.ts";
import {
  copyCompanions,
  type OutputTensor,
  writeSafetensors,
  writeWeights,
} from "../checkpoint/write.ts";
import type { Program } from "../graph/program.ts";
import { elementCount, parameterSpecs } from "../model/parameters.ts";
import { buildFold } from "../model/reparameterize.ts";
import type { HostArray, Weights } from "../runtime/device.ts";
import { ELEMENT_BYTES, fromF32 } from "../base/dtype.ts";
import { writeJson } from "../storage/write_file.ts";
import type { ModelSource } from "./model_source.ts";
import type { Trainer } from "./trainer.ts";

/** Files written besides tensors. */
export interface SaveOptions {
  /** Only prefixes, aggregator and other transformations. */
  readonly introducedOnly: boolean;
  /** Hidden units of the prefix MLP, 0 where there is none. */
  readonly reparameterize: number;
}

/** Writes config, weights and companions into an existing folder. */
export async function saveModel(
  folder: string,
  source: ModelSource,
  trainer: Trainer,
  options: SaveOptions,
): Promise<void> {
  const { config, files } = source;
  const R = options.reparameterize;
  const folded = R > 0 ? await compute(trainer, buildFold(config, R)) : new Map();
  const { dtype } = config;
  const size = ELEMENT_BYTES[dtype];
  const tensors = parameterSpecs(config)
    .filter(({ introduced }) => introduced || !options.introducedOnly)
    .map(({ name, shape }): OutputTensor => {
      const values = folded.get(name) ?? trainer.values(name);
      return {
        name,
        dtype,
        shape,
        byteLength: elementCount(shape) * size,
        // Arrays of the f64 reference become f32 on the way.
        source: (start, length) =>
          fromF32(Float32Array.from(values.subarray(start / size, (start + length) / size)), dtype),
      };
    });
  if (options.introducedOnly) {
    await writeSafetensors(`${folder}/${ADAPTER_FILE}`, tensors);
    const hash = await source.backboneSha256();
    const { auto_map: _, ...json } = source.configJson; // transformers opens whole folders
    // A checkpoint lies in the folder of its run.
    const owner = files && hash !== undefined && await baseFields(files, hash, folder, 3);
    writeJson(`${folder}/${CONFIG_FILE}`, { ...json, ...owner });
    return;
  }
  await writeWeights(folder, tensors);
  writeJson(`${folder}/${CONFIG_FILE}`, source.configJson);
  writeModelingCode(folder, source.configJson);
  if (files === undefined) return;
  await copyCompanions(files, folder);
}

/** All parameters are bound at every run; one map, so that all saves share a session. */
const NO_WEIGHTS: Weights = new Map();

/** Runs a program over the present values of its parameters. */
async function compute(
  trainer: Trainer,
  program: Program,
): Promise<ReadonlyMap<string, HostArray>> {
  const { device } = trainer;
  const executable = await device.compile(program, NO_WEIGHTS);
  const allocate = (types: Program["parameters"]) =>
    [...types].map(([name, type]) => [name, device.allocate(type)] as const);
  const parameters = allocate(program.parameters), outputs = allocate(program.outputs);
  for (const [name, tensor] of parameters) device.write(tensor, trainer.values(name));
  await executable.run(new Map([...parameters, ...outputs]));
  return new Map(outputs.map(([name, tensor]) => [name, device.read(tensor)]));
}
