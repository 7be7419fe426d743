/**
 * Finds the files of a model by its name: a folder, a run, or a name on the hub. Commands that compute
 * nothing need no more; `open.ts` loads the engine.
 */
import { type Checkpoint, openCheckpoint, tellReading } from "../checkpoint/open.ts";
import { type ModelPaths, resolveRuns } from "../checkpoint/run.ts";
import type { DownloadEvents } from "../hub/blob.ts";
import { resolveModel } from "../hub/model.ts";
import type { Quantization } from "./quantization.ts";

/** Progress events of opening a model. */
export interface OpenEvents extends DownloadEvents {
  /** Called with the bytes of quantized weights that are kept for the next start; `onBytes` follows. */
  readonly onQuantize?: (quantize: Quantization, bytes: number) => void;
  /**
   * Called when a device begins to load the weights, which it does at the first step, with each of them, and
   * at the end. Loading may keep the thread for long.
   */
  readonly onLoad?: (phase: "begin" | "weight" | "end") => void;
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

/** The folders of a model and its adapter: a hub name is downloaded, a run replaced by its checkpoint. */
export async function findModel(model: string, options: FindOptions = {}): Promise<ModelPaths> {
  return await resolveRuns(await resolveModel(model, options), options.adapter);
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
