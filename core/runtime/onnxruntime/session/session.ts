/**
 * A loaded model: the ONNX Runtime session, and the memory of its weights.
 */
import { elementCount } from "../../../graph/types.ts";
import type { Handle, OnnxApi, OnnxType } from "../capi/capi.ts";
import { onnxRuntimePath } from "../capi/library.ts";
import type { Lowered, WeightUse } from "../lowering/lower.ts";

/** Gives a session its weights. */
export interface Initializers {
  /** The weight in the form asked for, as a tensor that lives as long as the session. */
  tensor(use: WeightUse): Handle;
  /** Called when the session is made. */
  loaded(): void;
  /** Called when the session is closed. */
  close(): void;
}

/** A session and what it needs to stay alive. */
export class Session {
  readonly handle: Handle;
  readonly #api: OnnxApi;
  readonly #weights: Initializers;
  readonly #options: Handle;

  /** Loads a lowered program with its weights; `configure` says on what it runs, and how. */
  constructor(
    api: OnnxApi,
    lowered: Pick<Lowered, "bytes" | "weights">,
    weights: Initializers,
    configure: (options: Handle) => void,
  ) {
    this.#api = api;
    this.#weights = weights;
    this.#options = api.sessionOptions();
    try {
      const library = onnxRuntimePath();
      const folder = library.slice(0, library.lastIndexOf("/"));
      api.configure(this.#options, "session.model_external_initializers_file_folder_path", folder);
      // Our own rewriting shares equal nodes; the library's would undo what is recomputed.
      const unwanted = "CommonSubexpressionElimination";
      api.configure(this.#options, "optimization.disable_specified_optimizers", unwanted);
      configure(this.#options);
      for (const [name, use] of lowered.weights) {
        api.addInitializer(this.#options, name, weights.tensor(use));
      }
      this.handle = api.session(lowered.bytes, this.#options);
    } catch (error) {
      api.release("SessionOptions", this.#options);
      weights.close();
      throw error;
    }
    weights.loaded();
  }

  /** Frees the session and its weights. */
  close(): void {
    this.#api.release("Session", this.handle);
    this.#api.release("SessionOptions", this.#options);
    this.#weights.close();
  }
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
