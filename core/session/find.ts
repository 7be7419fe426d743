/**
 * Finds the files of a model by its name: a folder, a run, or a name on the hub. Commands that compute
 * nothing need no more; `open.ts` loads the engine.
 */
import { errorFrom, ParscaleError } from "../base/errors.ts";
import { backboneHint, checkAdapterBackbone, keptBackboneHash } from "../checkpoint/backbone.ts";
import { type Checkpoint, openCheckpoint, tellReading } from "../checkpoint/open.ts";
import { type ModelPaths, resolveRuns } from "../checkpoint/run.ts";
import type { DownloadEvents } from "../hub/blob.ts";
import { resolveModel } from "../hub/model.ts";
import type { Quantization } from "./quantization.ts";

/** Progress events of opening a model. */
export interface OpenEvents extends DownloadEvents {
  /** Called with the bytes of quantized weights that are kept for the next start; `onBytes` follows. */
  readonly onQuantize?: (quantize: Quantization, bytes: number) => void;
  /** Called with the bytes of the matrices when a device begins to load them, which is at the first step. */
  readonly onLoad?: (bytes: number) => void;
}

/** Options of finding a model. */
export interface FindOptions {
  /** ParScale parameters to lay over a plain backbone: a folder or a run. */
  readonly adapter?: string | undefined;
  /** Callbacks for downloads, quantized weights that are kept, notices and warnings. */
  readonly events?: OpenEvents;
  /** Aborts a download; its reason is thrown. */
  readonly signal?: AbortSignal;
}

/**
 * The folders of a model and its adapter: a hub name is downloaded, a run replaced by its checkpoint, an
 * adapter laid over the backbone that it names, which must have the hash of the one it was made from.
 */
export async function findModel(model: string, options: FindOptions = {}): Promise<ModelPaths> {
  const paths = await resolveRuns(await resolveModel(model, options), options.adapter);
  const { adapter } = paths;
  if (adapter === undefined || options.adapter !== undefined) return paths;
  const base = await openBase(paths.model, adapter, options);
  const { events, signal } = options;
  const onHash = (bytes: number) =>
    events?.onNotice?.(
      `checking that "${base.directory}" is the backbone of "${model}", ` +
        `${(bytes / 1e9).toPrecision(2)} GB`,
    );
  await checkAdapterBackbone(base, (base) => keptBackboneHash(base, onHash, signal));
  return { model: base.directory, adapter };
}

/** Opens an adapter over the backbone that it names. */
async function openBase(name: string, adapter: string, options: FindOptions): Promise<Checkpoint> {
  try {
    const base = await resolveModel(name, options);
    return await openCheckpoint(base, { adapter, quantized: true });
  } catch (error) {
    if (!(error instanceof ParscaleError)) throw error;
    const { kind, message } = error, hints = [backboneHint(adapter), ...error.hints];
    const what = `cannot open the backbone of adapter "${adapter}"`;
    throw errorFrom({ kind, message: `${what}: ${message}`, hints });
  }
}

/**
 * Opens the checkpoint of a name. With a `purpose`, a command in backticks, weights must have full
 * precision.
 */
export async function findCheckpoint(
  model: string,
  options: FindOptions = {},
  purpose?: string,
): Promise<Checkpoint> {
  const paths = await findModel(model, options);
  const how = purpose === undefined ? { quantized: true } : { purpose };
  const checkpoint = await openCheckpoint(paths.model, { ...paths, ...how });
  const { events } = options;
  tellReading(checkpoint, {
    note: (text) => events?.onNotice?.(text),
    warn: (text) => events?.onWarning?.(text),
  });
  return checkpoint;
}
