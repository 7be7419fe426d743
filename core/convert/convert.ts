/**
 * Converts a plain folder into a ParScale folder, or back.
 *
 * Backbone tensors are copied byte for byte and introduced ones are added; stripping leaves them out
 * again, and merging adds to them what a single stream changes. `planConversion` settles everything
 * without writing, `convert` carries it out in one pass over the weights, while the backbone is hashed and
 * searched for NaN beside it.
 */
import { NumericalError } from "../base/errors.ts";
import { isParScale, type ModelConfig } from "../model/config.ts";
import { parameterSpecs } from "../model/parameters.ts";
import { backboneHash, startBackboneHash } from "../checkpoint/backbone.ts";
import { baseFields } from "../checkpoint/adapter_base.ts";
import { writeFile, writeJson } from "../storage/write_file.ts";
import { writeFolder } from "../storage/write_folder.ts";
import { ADAPTER_FILE, CONFIG_FILE, openCheckpoint } from "../checkpoint/open.ts";
import { CARD_FILE, modelCard } from "./model_card.ts";
import { writeModelingCode } from "./modeling_code.ts";
import type { ConversionPlan } from "./plan.ts";
import { checkFinite } from "../checkpoint/read.ts";
import { copyCompanions, writeSafetensors, writeWeights } from "../checkpoint/write.ts";

/** Report of a conversion. */
export interface ConversionReport {
  readonly introducedParams: number;
  readonly backboneSha256: string;
  /** Number of tensors written. */
  readonly tensors: number;
  readonly bytes: number;
  /** Names of the files in the new folder. */
  readonly files: readonly string[];
}

/** Callbacks of carrying out a conversion. */
export interface ConversionRun {
  readonly onProgress?: (bytesDone: number, bytesTotal: number) => void;
  readonly signal?: AbortSignal;
  /** Read the result back in full and compare its hash; costs a second pass. */
  readonly verify?: boolean;
}

/** Carries out a plan. The new folder appears complete or not at all. */
export function convert(plan: ConversionPlan, run: ConversionRun = {}): Promise<ConversionReport> {
  const { options, source, tensors } = plan;
  const { signal } = run;
  let done = 0;
  const inspect = (piece: Uint8Array) => run.onProgress?.(done += piece.length, plan.bytes);

  const replaces = options.overwrite ? "checkpoint" : undefined;
  return writeFolder(options.out, { replaces, signal }, async (folder) => {
    // Hashing also looks for NaN; what it finds stops the copying beside it.
    await using hash = startBackboneHash(source, signal);
    const stream = { inspect, signal: hash.signal };
    const files = [CONFIG_FILE];
    if (!options.introducedOnly) files.push(...await copyCompanions(source.files, folder));
    files.push(...writeModelingCode(folder, plan.configJson));
    if (options.introducedOnly) {
      await writeSafetensors(`${folder}/${ADAPTER_FILE}`, tensors, stream);
      files.push(ADAPTER_FILE);
    } else {
      const maxShardBytes = options.maxShardSize;
      files.push(...await writeWeights(folder, tensors, { ...stream, maxShardBytes }));
    }
    const sourceSha256 = await hash.digest;
    const owner = options.introducedOnly && await baseFields(source.files, sourceSha256, folder);
    writeJson(`${folder}/${CONFIG_FILE}`, { ...plan.configJson, ...owner });
    const backbone = plan.folds ? undefined : sourceSha256;
    writeFile(`${folder}/${CARD_FILE}`, await cardOf(plan, backbone));
    files.push(CARD_FILE);
    const expected = run.verify && !plan.folds ? sourceSha256 : undefined;
    await verifyResult(plan, folder, expected, signal);
    const backboneSha256 = plan.folds
      ? await backboneHash(await openCheckpoint(folder), signal)
      : sourceSha256;
    return {
      introducedParams: plan.introducedParams,
      backboneSha256,
      tensors: tensors.length,
      bytes: plan.bytes,
      files,
    };
  });
}

function cardOf(
  { options, config, source, configJson }: ConversionPlan,
  backboneSha256: string | undefined,
): Promise<string> {
  return modelCard({
    folder: options.out,
    config,
    source: source.files,
    backboneSha256,
    isAdapter: options.introducedOnly ?? false,
    hasCode: configJson.auto_map !== undefined,
  });
}

/** Opens what was written and compares it with the plan. */
async function verifyResult(
  plan: ConversionPlan,
  folder: string,
  sha256: string | undefined,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { options, config } = plan;
  const written = options.introducedOnly
    ? await openCheckpoint(options.model, { adapter: folder })
    : await openCheckpoint(folder);
  // One stream uses neither prefix nor smoothing, and the file does not state them.
  const used = (some: ModelConfig) =>
    JSON.stringify(isParScale(some) ? some : { ...some, prefixTokens: 0, smoothing: 0 });
  const agrees = used(written.config) === used(config);
  const introduced = parameterSpecs(config).filter((spec) => spec.introduced || plan.folds);
  const tensors = new Map(introduced.map(({ name }) => [name, written.tensors.get(name)!]));
  try {
    await checkFinite({ ...written, tensors });
  } catch (error) {
    if (options.dtype !== "f16" || !(error instanceof NumericalError)) throw error;
    throw new NumericalError(`a weight of "${options.model}" is too large for f16`, {
      hints: ["pass --dtype bf16"],
    });
  }
  if (!agrees || sha256 !== undefined && await backboneHash(written, signal) !== sha256) {
    const part = agrees ? "backbone" : "config";
    throw new NumericalError(
      `"${options.out}" was not written correctly: its ${part} differs when read back`,
      { hints: ["check the disk for errors"] },
    );
  }
}
