/** Progress of `eval`: reading counts, from the first chunk on. */
import { assertEquals } from "@std/assert";
import { TaskProgress } from "../../../cli/commands/eval/task_progress.ts";
import type { PlannedDocument } from "../../../core/eval/harness/predict.ts";
import type { Sample } from "../../../core/eval/harness/samples.ts";
import { captureIo } from "./capture_io.ts";

/** Documents of a task that is nothing but its name and kind. */
function planned(name: string, kind: string, count: number): PlannedDocument[] {
  const task = { name, kind };
  return Array.from({ length: count }, (_, id) => {
    return { document: { task, id } } as unknown as PlannedDocument;
  });
}

const OPTIONS = { temperatures: () => [0], batch: 2 };
const sampleOf = (task: string, doc_id: number) => ({ task, doc_id, sample: 0 }) as Sample;

Deno.test("eval tells the tokens of a text from its first chunk on, and the row's time has its reading", () => {
  const { io, stderr, advance } = captureIo();
  {
    using progress = new TaskProgress(io, planned("book", "perplexity", 1), OPTIONS, new Set());
    advance(10_000); // the model loads, and reads the first chunk
    progress.read("book", 256, 2560);
    advance(10_000);
    progress.read("book", 512, 2560);
    advance(80_000);
    progress.read("book", 2560, 2560);
    progress.add(sampleOf("book", 0));
  }
  assertEquals(stderr().split("\n"), [
    "Evaluating book: 0/1 samples, 1m30s left, 25.6 tokens/s, 256/2560 tokens read",
    "Evaluating book: 0/1 samples, 1m20s left, 25.6 tokens/s, 512/2560 tokens read",
    "Evaluating book: 0/1 samples, 0s left, 25.6 tokens/s, 2560/2560 tokens read",
    "Evaluating book: 1 sample in 1m40s, 100 s a sample",
    "",
  ]);
});

Deno.test("eval tells the tokens of prompts, and of answers the time left once one has ended", () => {
  const { io, stderr, advance } = captureIo();
  using progress = new TaskProgress(io, planned("gsm", "generation", 4), OPTIONS, new Set());
  advance(3000);
  progress.prefill(512, 1024);
  progress.grow({ task: "gsm" });
  for (let token = 0; token < 20; token++) {
    advance(1000);
    progress.grow({ task: "gsm" });
  }
  progress.add(sampleOf("gsm", 0));
  advance(10_000);
  progress.grow({ task: "gsm" });
  assertEquals(stderr().split("\n"), [
    "Evaluating gsm: 0/4 samples, reading 512/1024 tokens of prompts",
    "Evaluating gsm: 0/4 samples, 1 tokens/s",
    "Evaluating gsm: 0/4 samples, 1 tokens/s",
    "Evaluating gsm: 1/4 samples, 1m10s left, 2.13 s a token",
    "",
  ]);
});
