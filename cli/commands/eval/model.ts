/** What an evaluation needs of a model: engine, tokenizer, chat template, limits, and its hash. */
import type { Answerer } from "../../../core/eval/harness/predict.ts";
import type { ChatRenderer } from "../../../core/eval/harness/documents.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { type OpenedModel, openModel } from "../../input/open_model.ts";
import type { Io } from "../../output/io.ts";
import type { EvalValues } from "./flags.ts";

/** An opened model, ready to answer. */
export interface EvalModel extends Answerer, Disposable {
  readonly opened: OpenedModel;
  /** Hash by which samples of another model are noticed. */
  readonly fingerprint: string;
  readonly maxLength: number;
  readonly render: ChatRenderer;
  readonly eosTokenIds: readonly number[];
  readonly eosText: string | undefined;
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
  const { modelFingerprint } = await import("../../../core/checkpoint/fingerprint.ts");
  const { RequestEncoder } = await import("../../../core/eval/harness/encode.ts");
  const { renderChat } = await import("../../../core/tokenizer/chat.ts");
  const { startTokenOf } = await import("../../../core/tokenizer/pair.ts");
  const opened = await openModel({ ...values, model: requireModel(values) }, io);
  try {
    const tokenizer = await opened.tokenizer();
    const { config } = opened.checkpoint;
    const context = config.maxPositionEmbeddings;
    const maxLength = values.maxLength ?? context;
    if (maxLength > context) {
      throw new UsageError(
        `\`--max-length ${maxLength}\` exceeds the model's context of ${context} tokens`,
      );
    }
    const startToken = startTokenOf(tokenizer, config.eosTokenIds);
    return {
      opened,
      engine: opened.engine,
      tokenizer,
      encoder: new RequestEncoder({ tokenizer, maxLength, startToken }),
      fingerprint: modelFingerprint(opened.checkpoint),
      maxLength,
      render: (messages) => renderChat(tokenizer, messages),
      eosTokenIds: config.eosTokenIds,
      eosText: tokenizer.namedTokens.eos_token,
      [Symbol.dispose]: () => opened[Symbol.dispose](),
    };
  } catch (error) {
    opened[Symbol.dispose]();
    throw error;
  }
}

/** Only the chat template of the model. */
export async function openRenderer(values: EvalValues, io: Io): Promise<ChatRenderer> {
  const { findModel } = await import("../../input/hub.ts");
  const { resolveRuns } = await import("../../../core/checkpoint/run.ts");
  const { openTokenizer } = await import("../../../core/tokenizer/tokenizer.ts");
  const { renderChat } = await import("../../../core/tokenizer/chat.ts");
  const paths = await resolveRuns(await findModel(requireModel(values), io), values.adapter);
  const tokenizer = await openTokenizer(paths.model);
  return (messages) => renderChat(tokenizer, messages);
}
