/** Endpoints of the tokenizer, in the layout that lm-evaluation-harness asks for. */
import { encodeBeside, waitingTexts } from "../tokenizer/background.ts";
import { badField, tryLater } from "./errors.ts";
import type { ServedModel } from "./service.ts";
import { Fields } from "./fields.ts";
import { readRequest, renderRequest } from "./request.ts";

/** Long texts that may wait to be encoded: a few megabytes each, a second or two. */
const MAX_WAITING = 32;

/** `POST /tokenize` */
export async function tokenize(
  { session: { tokenizer }, maxLength }: ServedModel,
  body: unknown,
): Promise<Response> {
  const fields = new Fields(body);
  let text = fields.text("prompt");
  // The frame is added unless it is unwanted, as when a prompt is completed.
  let unframed = !fields.boolean("add_special_tokens", true);
  if (text === undefined && fields.get("messages") !== undefined) {
    unframed = true; // a template writes out the frame
    text = await renderRequest(tokenizer, readRequest("chat", body, () => {}));
  }
  if (text === undefined) throw badField("prompt", "`prompt` or `messages` is missing");
  requireQueue();
  const ids = await encodeBeside(tokenizer, text, unframed ? { frame: false } : {});
  const tokens = Array.from(ids);
  return Response.json({ tokens, count: tokens.length, max_model_len: maxLength });
}

/** Refuses a text while many long ones wait to be encoded. */
export function requireQueue(): void {
  const waiting = waitingTexts();
  if (waiting >= MAX_WAITING) throw tryLater(429, `${waiting} long texts wait to be tokenized`, 1);
}

/** Most ids that are decoded at once: each may be a token of a hundred bytes. */
const MAX_IDS = 1 << 18;

/** `POST /detokenize` */
export function detokenize({ session: { tokenizer, config } }: ServedModel, body: unknown) {
  const tokens = new Fields(body).get("tokens");
  const isId = (id: unknown) =>
    Number.isInteger(id) && (id as number) >= 0 && (id as number) < config.vocabSize;
  if (!Array.isArray(tokens) || !tokens.every(isId)) {
    throw badField("tokens", `\`tokens\` needs a list of ids below ${config.vocabSize}`);
  }
  if (tokens.length > MAX_IDS) {
    throw badField("tokens", `\`tokens\` has ${tokens.length} ids, at most ${MAX_IDS} are allowed`);
  }
  return { prompt: tokenizer.decode(tokens) };
}

/** `GET /tokenizer_info` */
export function tokenizerInfo({ session: { tokenizer }, tokenizerClass }: ServedModel) {
  const { namedTokens, chatTemplate } = tokenizer;
  return {
    tokenizer_class: tokenizerClass,
    eos_token: namedTokens.eos_token ?? null,
    bos_token: namedTokens.bos_token ?? null,
    pad_token: namedTokens.pad_token ?? null,
    chat_template: chatTemplate ?? null,
  };
}
