/**
 * A loaded model: the ONNX Runtime session, and the memory of its weights.
 */
import { dirname } from "node:path";
import { elementCount } from "../../../graph/types.ts";
import type { OnnxApi } from "../capi/capi.ts";
import type { Handle } from "../capi/table.ts";
import type { OnnxType } from "../element_types.ts";
import { onnxRuntimePath } from "../capi/library.ts";
import type { Lowered, WeightUse } from "../lowering/lower.ts";

/** Gives a session its weights. */
export interface Initializers {
  /** The weight in the form asked for, as a tensor that lives as long as the session. */
  tensor(use: WeightUse): Handle;
  /** The same in the memory of the processor. */
  hostTensor(use: WeightUse): Handle;
  /** Called when the session is made. */
  loaded(): void;
  /** Called when the session is closed. */
  close(): void;
}

/** Parts of a session. */
export interface SessionSource {
  readonly lowered: Pick<Lowered, "bytes" | "weights">;
  /** Weights that are not read from files. */
  readonly weights: Initializers;
  /** Folder of weights that are read from files. */
  readonly folder?: string | undefined;
  /** Says on what the session runs, and how. */
  configure(options: Handle): void;
  /** Rewritings of the library that the session must not undergo. */
  readonly unwanted?: readonly string[];
  /** Asked once the weights are given: packing begins when this is over. */
  turn?(): Promise<unknown> | undefined;
  /** Called after each weight that `openLater` gives: decoding all of them takes seconds. */
  readonly pause?: (() => Promise<void>) | undefined;
}

/** A session and what it needs to stay alive. */
export class Session {
  readonly #handle: Handle;
  readonly #owned: DisposableStack;
  #runs = 0;
  #isClosed = false;

  private constructor(handle: Handle, owned: DisposableStack) {
    this.#handle = handle;
    this.#owned = owned;
  }

  /** The library's session. Throws when it was closed, since the library would crash. */
  get handle(): Handle {
    if (this.#isClosed) throw new Error("the device was closed");
    return this.#handle;
  }

  /** Loads a lowered program with its weights. */
  static open(api: OnnxApi, source: SessionSource): Session {
    using owned = new DisposableStack();
    const options = optionsOf(api, source, owned);
    giveWeights(api, options, source).toArray();
    return Session.#loaded(api, api.session(source.lowered.bytes, options), source, owned);
  }

  /** The same, packing weights on another thread; without a `pause` giving them is not put off. */
  static async openLater(api: OnnxApi, source: SessionSource): Promise<Session> {
    using owned = new DisposableStack();
    const options = optionsOf(api, source, owned);
    for (const _ of giveWeights(api, options, source)) if (source.pause) await source.pause();
    const turn = source.turn?.();
    if (turn) await turn; // else at once, before the next part takes the thread for its copies
    const handle = await api.sessionLater(source.lowered.bytes, options);
    return Session.#loaded(api, handle, source, owned);
  }

  static #loaded(
    api: OnnxApi,
    handle: Handle,
    { weights }: SessionSource,
    owned: DisposableStack,
  ): Session {
    owned.defer(() => api.release("Session", handle));
    weights.loaded();
    return new Session(handle, owned.move());
  }

  /** Keeps the session from being freed while a run is under way. */
  async during(run: () => Promise<void>): Promise<void> {
    this.#runs++;
    try {
      await run();
    } finally {
      this.#runs--;
      this.#freeIfClosed();
    }
  }

  /** Frees the session and its weights, once the run under way is over. */
  close(): void {
    this.#isClosed = true;
    this.#freeIfClosed();
  }

  #freeIfClosed(): void {
    if (this.#isClosed && this.#runs === 0) this.#owned.dispose();
  }
}

/** Makes the options of a session; `owned` frees them, and the weights given to it. */
function optionsOf(api: OnnxApi, source: SessionSource, owned: DisposableStack): Handle {
  const { weights, folder = dirname(onnxRuntimePath()), configure } = source;
  const options = api.sessionOptions();
  owned.defer(() => weights.close());
  owned.defer(() => api.release("SessionOptions", options));
  api.configure(options, "session.model_external_initializers_file_folder_path", folder);
  // Our own rewriting shares equal nodes; the library's would undo what is recomputed.
  const unwanted = ["CommonSubexpressionElimination", ...source.unwanted ?? []].join(";");
  api.configure(options, "optimization.disable_specified_optimizers", unwanted);
  configure(options);
  return options;
}

/** Gives a session its weights, one at each step. */
function* giveWeights(
  api: OnnxApi,
  options: Handle,
  { lowered, weights }: SessionSource,
): Generator<void> {
  const folded = new Map<string, Handle>();
  for (const [name, use] of lowered.weights) {
    if (use.isFolded) folded.set(name, weights.hostTensor(use));
    else api.addInitializer(options, name, weights.tensor(use));
    yield;
  }
  if (folded.size > 0) api.addFolded(options, folded);
}

/** Bytes of one weight in the form a program uses. */
export function weightBytes({ type, shape }: WeightUse): number {
  return elementCount(shape) * ONNX_BYTES[type];
}

const ONNX_BYTES: Readonly<Record<OnnxType, number>> = {
  f32: 4,
  i32: 4,
  i64: 8,
  bf16: 2,
  f16: 2,
  u8: 1,
  bool: 1,
};
