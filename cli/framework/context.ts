/**
 * Context of a command: its streams, its invocation and the models that it opens.
 *
 * A dry run is the run, stopped: `begin` ends it where the work would begin. Before that, a command only
 * reads and checks, so that what is wrong shows; nothing is downloaded, and no quantized weights are kept.
 */
import type { Session } from "../../core/session/session.ts";
import type { ModelPlan, ModelValues } from "../input/open_model.ts";
import type { Invocation } from "../output/document.ts";
import type { Io } from "../output/io.ts";
import type { PlanText } from "../output/plan.ts";

/** End of a dry run. */
class DryRunEnd extends Error {
  constructor(readonly text: PlanText) {
    super("the dry run is over");
  }
}

/** Streams, invocation and models of one run of a command. */
export class Context {
  #opened: PlanText = { lines: [] };

  constructor(readonly io: Io, readonly invocation: Invocation, readonly isDryRun = false) {}

  /** Ends a dry run here, where the work begins. */
  begin(text?: PlanText): void {
    if (this.isDryRun) this.end(text);
  }

  /** Ends a dry run, which says what was opened, and `text`. */
  end({ lines, results, values = {} }: PlanText = { lines: [] }): never {
    const opened = this.#opened;
    throw new DryRunEnd({
      lines: [...opened.lines, ...lines],
      results: { ...opened.results, ...results },
      values,
    });
  }

  /** Opens the model that flags name. */
  async openModel(values: ModelValues): Promise<Session> {
    const { modelPlan, openModel } = await import("../input/open_model.ts");
    const open = async (plan: ModelPlan) => ({ session: await openModel(plan, this.io) });
    return (await this.open(modelPlan(values), open)).session;
  }

  /** Opens a model together with others that `open` adds; a dry run ends where it is not here. */
  async open<T extends { readonly session: Session }>(
    plan: ModelPlan,
    open: (plan: ModelPlan) => Promise<T>,
  ): Promise<T> {
    if (!this.isDryRun) return await open(plan);
    const { tryModel } = await import("../input/open_model.ts");
    const { text, opened } = await tryModel(plan, open);
    this.#opened = text;
    return opened ?? this.end();
  }
}

/** Text of a dry run, which ends at the first `begin` of `run`. */
export async function dryRun(run: () => Promise<unknown>): Promise<PlanText> {
  try {
    await run();
  } catch (error) {
    if (error instanceof DryRunEnd) return error.text;
    throw error;
  }
  throw new Error("the run did not begin its work");
}
