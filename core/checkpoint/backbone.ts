/**
 * Identity of a backbone: a hash that a model, its conversion and the stripped conversion share.
 *
 * It is SHA-256 over the raw bytes of all backbone tensors in the order of `parameterSpecs`.
 * Sharding, header layout and introduced tensors do not enter. Hashing takes as long as copying, so a
 * large backbone is hashed by a worker that reads the files itself, beside whatever else is done.
 */
import { createHash } from "node:crypto";
import { dirname } from "node:path";
import { abortable } from "../base/abortable.ts";
import { cacheFolder } from "../base/cache_folder.ts";
import { DataError } from "../base/errors.ts";
import { writeFile } from "../storage/write_file.ts";
import { Thread } from "../base/thread.ts";
import { plainConfig } from "../model/config.ts";
import { parameterSpecs } from "../model/parameters.ts";
import type { Checkpoint } from "./open.ts";
import { filesKey } from "./files_key.ts";
import { requireFinite } from "./read.ts";
import { type OutputTensor, streamTensors } from "./write.ts";

/** Below this many bytes a worker takes longer to start than the hash to compute, which then is not kept. */
const WORKER_BYTES = 64 << 20;

/** The backbone's tensors in the order of the hash, to be read from where they are stored. */
export function backboneTensors(checkpoint: Checkpoint): OutputTensor[] {
  return parameterSpecs(plainConfig(checkpoint.config)).map(({ name }) => {
    const source = checkpoint.tensors.get(name)!;
    return { ...source, source };
  });
}

/**
 * SHA-256 over the raw bytes of tensors, in hexadecimal.
 * @throws {NumericalError} for a NaN or infinity among stored weights
 */
export async function hashTensors(
  tensors: readonly OutputTensor[],
  signal?: AbortSignal,
): Promise<string> {
  const hash = createHash("sha256");
  const inspect = (piece: Uint8Array<ArrayBuffer>, tensor: OutputTensor, start: number) => {
    hash.update(piece);
    if ("dtype" in tensor.source) requireFinite(tensor.source, start, piece);
  };
  await streamTensors(tensors, { inspect, signal });
  return hash.digest("hex");
}

/**
 * SHA-256 of the backbone, as described at the top of this file; for quantized weights that of what they
 * were made from.
 */
export async function backboneHash(checkpoint: Checkpoint, signal?: AbortSignal): Promise<string> {
  if (checkpoint.quantization) return checkpoint.quantization.sourceSha256;
  await using hash = startBackboneHash(checkpoint, signal);
  return await hash.digest;
}

/** A hash being computed; disposing gives it up. */
export interface RunningHash extends AsyncDisposable {
  /** Rejects as reading the files inline would. */
  readonly digest: Promise<string>;
  /** Aborts with the given signal, and when hashing fails: work beside it then ends, too. */
  readonly signal: AbortSignal;
}

/** Begins to hash the backbone beside other work. */
export function startBackboneHash(checkpoint: Checkpoint, signal?: AbortSignal): RunningHash {
  const tensors = backboneTensors(checkpoint), bytes = bytesOf(tensors);
  const given = new AbortController();
  const either = signal === undefined ? given.signal : AbortSignal.any([signal, given.signal]);
  const digest = bytes < WORKER_BYTES
    ? hashTensors(tensors, either)
    : keepHash(checkpoint, hashBeside(tensors, either));
  const failed = new AbortController();
  const settled = digest.then(() => {}, (error) => failed.abort(error));
  return {
    digest,
    signal: AbortSignal.any([failed.signal, ...signal ? [signal] : []]),
    async [Symbol.asyncDispose]() {
      given.abort();
      await settled;
    },
  };
}

async function hashBeside(tensors: readonly OutputTensor[], signal: AbortSignal): Promise<string> {
  const worker = new URL("./hash_worker.ts", import.meta.url);
  const thread = new Thread<readonly OutputTensor[], string>(worker, "hash worker");
  try {
    return await abortable(thread.ask(tensors), signal);
  } finally {
    thread.end();
  }
}

function bytesOf(tensors: readonly OutputTensor[]): number {
  return tensors.reduce((sum, { byteLength }) => sum + byteLength, 0);
}

/** File of the cache folder that keeps a hash for as long as the files of the weights are the same. */
async function keptFile({ config, tensors }: Checkpoint): Promise<string> {
  const stored = parameterSpecs(plainConfig(config)).map(({ name }) => tensors.get(name)!);
  return `${cacheFolder((name) => Deno.env.get(name))}/backbones/${await filesKey(stored)}`;
}

/** Keeps a hash for the next start; in a cache that cannot be written it is computed again. */
async function keepHash(checkpoint: Checkpoint, computing: Promise<string>): Promise<string> {
  const file = keptFile(checkpoint).catch(() => undefined); // of the files as they are now
  const [digest, path] = await Promise.all([computing, file]);
  try {
    await Deno.mkdir(dirname(path!), { recursive: true });
    writeFile(path!, digest);
  } catch {
    // The result does not depend on it.
  }
  return digest;
}

/** The same as `backboneHash`, from an earlier start if it can be; else `onHash` is called with the bytes. */
export async function keptBackboneHash(
  checkpoint: Checkpoint,
  onHash?: (bytes: number) => void,
  signal?: AbortSignal,
): Promise<string> {
  const bytes = checkpoint.quantization ? 0 : bytesOf(backboneTensors(checkpoint));
  if (bytes >= WORKER_BYTES) {
    const kept = await keptFile(checkpoint).then(Deno.readTextFile).catch(() => "");
    if (/^[0-9a-f]{64}$/.test(kept)) return kept;
    onHash?.(bytes);
  }
  return await backboneHash(checkpoint, signal);
}

/** Hint for an adapter whose own backbone cannot be used. */
export function backboneHint(adapter: string): string {
  return `pass the backbone it was made from: --model BACKBONE --adapter ${adapter}`;
}

/** Throws unless an adapter's record of its backbone agrees with the one it is used with. */
export async function checkAdapterBackbone(
  checkpoint: Checkpoint,
  hash: (checkpoint: Checkpoint) => Promise<string> = backboneHash,
): Promise<void> {
  const { adapter, directory } = checkpoint;
  if (adapter?.backboneSha256 === undefined) return;
  const found = await hash(checkpoint);
  if (found === adapter.backboneSha256) return;
  throw new DataError(
    `adapter "${adapter.directory}" was not made from "${directory}": backbone_sha256 is ${found}, expected ${adapter.backboneSha256}`,
    { hints: [backboneHint(adapter.directory)] },
  );
}
