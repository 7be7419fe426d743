/** A worker that encodes long texts; see `background.ts`. */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { answerQuestions } from "../base/thread_worker.ts";
import type { BackgroundRequest } from "./background.ts";
import { openTokenizer, type Tokenizer } from "./tokenizer.ts";

/** The tokenizer in use; another folder's takes its place. */
let opened: { readonly directory: string; readonly tokenizer: Promise<Tokenizer> } | undefined;

answerQuestions(
  async ({ directory, text, options }: BackgroundRequest) => {
    if (opened?.directory !== directory) {
      opened = { directory, tokenizer: openTokenizer(directory) };
    }
    return Int32Array.from((await opened.tokenizer).encode(text, options));
  },
  ({ buffer }) => [buffer],
);
