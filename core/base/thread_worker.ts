/** The other side of `thread.ts`: what a worker module calls. */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { ParscaleError, plainError } from "./errors.ts";
import type { Reply } from "./thread.ts";

/**
 * Answers every message. Work on the next begins before an answer is there, but answers keep the order;
 * `buffersOf` names the memory of one that is handed over without a copy.
 */
export function answerQuestions<Question, Answer>(
  answer: (question: Question) => Promise<Answer>,
  buffersOf: (answer: Answer) => ArrayBufferLike[] = () => [],
): void {
  let last = Promise.resolve();
  self.onmessage = ({ data }: MessageEvent<Question>) => {
    const reply = replyTo(() => answer(data));
    last = Promise.all([reply, last]).then(([reply]) => {
      self.postMessage(reply, "answer" in reply ? buffersOf(reply.answer) as ArrayBuffer[] : []);
    });
  };
}

async function replyTo<A>(answer: () => Promise<A>): Promise<Reply<A>> {
  try {
    return { answer: await answer() };
  } catch (error) {
    if (!(error instanceof ParscaleError)) throw error;
    return { error: plainError(error) };
  }
}
