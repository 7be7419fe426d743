/**
 * Programs made ready for ONNX Runtime, on as few sessions as possible.
 *
 * Programs of one model that differ only in sizes lower to equal bytes (see `lower.ts`), and share a
 * session with the copy of the weights that it has packed.
 */
import { createHash } from "node:crypto";
import { type MemoryPlan, planMemory } from "../../../graph/memory_plan.ts";
import { prepare } from "../../../graph/rewrite.ts";
import type { Program } from "../../../graph/program.ts";
import { tensorBytes } from "../../../graph/types.ts";
import type { CompileOptions, Weights } from "../../device.ts";
import {
  lower,
  type Lowered,
  type LoweringOptions,
  lowers,
  type WeightUse,
} from "../lowering/lower.ts";
import { type Session, weightBytes } from "./session.ts";
import { WeightPlaces } from "./weight_places.ts";

/** A program as it runs. */
export interface Ready {
  readonly program: Program;
  readonly lowered: Lowered;
  readonly weights: Weights;
  /** True for one of several programs that run one after the other; see `chain.ts`. */
  readonly isPart?: boolean;
  /** Compiled for exactly these sizes. */
  readonly fixedSizes?: boolean;
}

/** Options of all sessions of a pool. */
export interface PoolOptions extends Pick<LoweringOptions, "target" | "matrices" | "alikeRows"> {
  /** True if the library reads weights from files where it can. */
  readonly readsFiles?: boolean;
  /** Returns the bytes of a weight that stay in memory, in a file or given; all unless told. */
  readonly heldBytes?: (use: WeightUse, isInFile: boolean) => number;
}

/** Makes a session; `folder` is that of the weights in files. */
type Open = (ready: Ready, folder: string | undefined) => Session | Promise<Session>;

export class SessionPool {
  readonly #sessions = new Map<Weights, Map<string, Session | Promise<Session>>>();
  readonly #places = new WeakMap<Weights, WeightPlaces>();
  #isClosed = false;

  /** `open` makes a session, when there is none for what was lowered. */
  constructor(private readonly options: PoolOptions, private readonly open: Open) {
  }

  /** Sessions opened so far. */
  get size(): number {
    return [...this.#sessions.values()].reduce((count, map) => count + map.size, 0);
  }

  /** Rewrites a program into ops that are lowered. */
  prepare(program: Program): Program {
    return prepare(program, (op) => lowers(op, this.options.target));
  }

  /** Lowers a prepared program. */
  lower(program: Program, weights: Weights, { fixedSizes = false }: CompileOptions = {}): Ready {
    const { matrices, alikeRows, target } = this.options;
    const places = this.#placesOf(weights);
    const { placeholder } = places ?? {};
    const lowered = lower(program, {
      weights,
      matrices,
      alikeRows,
      target,
      fixedSizes,
      ...(places ? { place: places.find } : {}),
      ...(placeholder === undefined ? {} : { placeholder }),
    });
    return { program, lowered, weights };
  }

  /**
   * Temporaries are planned as if they lay in one arena; ONNX Runtime keeps one of its own, with some
   * loss between them. It does not know the sizes, so results never take the memory of operands.
   */
  plan(program: Program, weights: Weights): MemoryPlan {
    const { lowered } = this.lower(program, weights);
    const plan = planMemory(program, { reuseInputs: false });
    let parameters = 0;
    const { heldBytes = weightBytes } = this.options;
    for (const use of lowered.weights.values()) parameters += heldBytes(use, false);
    for (const use of lowered.fileWeights.values()) parameters += heldBytes(use, true);
    for (const [name, type] of program.parameters) {
      if (!weights.has(name)) parameters += tensorBytes(type);
    }
    const totalBytes = plan.totalBytes - plan.sections.parameters + parameters;
    return { ...plan, sections: { ...plan.sections, parameters }, totalBytes };
  }

  /** The session that a lowered program runs on; one that could not be made is tried again. */
  async session(ready: Ready): Promise<Session> {
    const sessions = this.#sessions.getOrInsertComputed(ready.weights, () => new Map());
    const key = createHash("sha256").update(ready.lowered.bytes).digest("hex");
    const known = sessions.get(key);
    if (known) return await known;
    const opening = this.open(ready, this.#placesOf(ready.weights)?.folder);
    sessions.set(key, opening);
    try {
      const session = await opening;
      if (this.#isClosed) {
        session.close();
        throw new Error("the device was closed");
      }
      sessions.set(key, session);
      return session;
    } catch (error) {
      sessions.delete(key);
      throw error;
    }
  }

  /** Closes all sessions, one that is being made as soon as it is. */
  close(): void {
    this.#isClosed = true;
    for (const sessions of this.#sessions.values()) {
      for (const session of sessions.values()) if ("close" in session) session.close();
    }
    this.#sessions.clear();
  }

  #placesOf(weights: Weights): WeightPlaces | undefined {
    if (!this.options.readsFiles) return undefined;
    return this.#places.getOrInsertComputed(weights, () => new WeightPlaces(weights));
  }
}
