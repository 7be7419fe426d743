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
import type { Weights } from "../../device.ts";
import type { OnnxType } from "../capi/capi.ts";
import { lower, type Lowered, type LoweringOptions, lowers } from "../lowering/lower.ts";
import { type Session, weightBytes } from "./session.ts";

/** A program as it runs. */
export interface Ready {
  readonly program: Program;
  readonly lowered: Lowered;
  readonly weights: Weights;
}

export class SessionPool {
  readonly #options: Pick<LoweringOptions, "matrices" | "target">;
  readonly #open: (ready: Ready) => Session;
  readonly #sessions = new Map<Weights, Map<string, Session>>();

  /** `open` makes a session, when there is none for what was lowered. */
  constructor(
    options: Pick<LoweringOptions, "matrices" | "target">,
    open: (ready: Ready) => Session,
  ) {
    this.#options = options;
    this.#open = open;
  }

  /** Sessions opened so far. */
  get size(): number {
    return [...this.#sessions.values()].reduce((count, map) => count + map.size, 0);
  }

  /** Rewrites a program into ops that are lowered. */
  prepare(program: Program): Program {
    return prepare(program, (op) => lowers(op, this.#options.target));
  }

  /** Lowers a prepared program. */
  lower(program: Program, weights: Weights): Ready {
    const storedType = (name: string) => weights.get(name)?.dtype as OnnxType | undefined;
    const lowered = lower(program, { ...this.#options, storedType });
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
    for (const use of lowered.weights.values()) parameters += weightBytes(use);
    for (const [name, type] of program.parameters) {
      if (!weights.has(name)) parameters += tensorBytes(type);
    }
    const totalBytes = plan.totalBytes - plan.sections.parameters + parameters;
    return { ...plan, sections: { ...plan.sections, parameters }, totalBytes };
  }

  /** The session that a lowered program runs on. */
  session(ready: Ready): Session {
    const sessions = this.#sessions.get(ready.weights) ?? new Map<string, Session>();
    this.#sessions.set(ready.weights, sessions);
    const key = createHash("sha256").update(ready.lowered.bytes).digest("hex");
    const session = sessions.get(key) ?? this.#open(ready);
    sessions.set(key, session);
    return session;
  }

  /** Closes all sessions. */
  close(): void {
    for (const sessions of this.#sessions.values()) {
      for (const session of sessions.values()) session.close();
    }
    this.#sessions.clear();
  }
}
