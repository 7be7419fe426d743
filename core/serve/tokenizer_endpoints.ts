/** `GET /tokenizer_info`, in the layout that lm-evaluation-harness asks for. */
import type { ServedModel } from "./service.ts";

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
