/** What an evaluation needs of a model: engine, tokenizer, chat template, limits, and its hash. */
import { modelFingerprint } from "../../../core/checkpoint/fingerprint.ts";
import { RequestEncoder } from "../../../core/eval/harness/encode.ts";
import type { Answerer } from "../../../core/eval/harness/predict.ts";
import type { ChatRenderer } from "../../../core/eval/harness/documents.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { renderChat } from "../../../core/tokenizer/chat.ts";
import { startTokenOf } from "../../../core/tokenizer/pair.ts";
import type { Session } from "../../../core/session/session.ts";
import { findModel, openModel } from "../../input/open_model.ts";
import type { Io } from "../../output/io.ts";
import type { EvalValues } from "./flags.ts";

/** An opened model, ready to answer. */
export interface EvalModel extends Answerer, Disposable {
  readonly session: Session;
  /** Hash by which samples of another model are noticed. */
  readonly fingerprint: string;
  readonly maxLength: number;
  readonly render: ChatRenderer;
}

/** The path in --model, which evaluating needs. */
export function requireModel({ model }: EvalValues): string {
  if (model !== undefined) return model;
  throw new UsageError("`eval` needs `--model`", {
    hints: ["to score answers that exist already, pass --score FILE"],
  });
}

/** Opens the model of the flags. */
export async function openEvalModel(values: EvalValues, io: Io): Promise<EvalModel> {
  const session = await openModel({ ...values, model: requireModel(values) }, io);
  try {
    const tokenizer = await session.openTokenizer();
    const { config } = session;
    const context = config.maxPositionEmbeddings;
    const maxLength = values.maxLength ?? context;
    if (maxLength > context) {
      throw new UsageError(
        `\`--max-length ${maxLength}\` exceeds the model's context of ${context} tokens`,
      );
    }
    const startToken = startTokenOf(tokenizer, config.eosTokenIds);
    return {
      session,
      engine: session.engine,
      tokenizer,
      encoder: new RequestEncoder({ tokenizer, maxLength, startToken }),
      fingerprint: modelFingerprint(session.checkpoint),
      maxLength,
      render: (messages) => renderChat(tokenizer, messages),
      [Symbol.dispose]: () => session[Symbol.dispose](),
    };
  } catch (error) {
    session[Symbol.dispose]();
    throw error;
  }
}

/** Only the chat template of the model. */
export async function openRenderer(values: EvalValues, io: Io): Promise<ChatRenderer> {
  const { openTokenizer } = await import("../../../core/tokenizer/tokenizer.ts");
  const { model } = await findModel({ ...values, model: requireModel(values) }, io);
  const tokenizer = await openTokenizer(model);
  return (messages) => renderChat(tokenizer, messages);
}
