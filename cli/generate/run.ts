/**
 * What `generate` does: reads prompts, runs them, and writes text as it comes, or rows in input order.
 *
 * Formats that go out row by row read their prompts as slowly as they come and answer early ones
 * before the input ends. The others need all rows, and know their number from the start.
 */
import { UsageError } from "../../core/base/errors.ts";
import { Decoding, type DecodingValues, type Sequence } from "./sequences.ts";
import { openModel, type OpenOptions } from "../open_model.ts";
import type { Invocation } from "../output/document.ts";
import type { Io } from "../output/io.ts";
import { startProgress } from "../output/progress.ts";
import { openReport, type Report } from "../output/report.ts";
import { openSink } from "../output/sink.ts";
import { type Prompt, type PromptSource, readPrompts } from "../prompts.ts";
import { failureOf } from "../rows.ts";

/** Flags of `generate` that matter here. */
export interface GenerateValues extends OpenOptions, PromptSource, DecodingValues {}

/** Runs the command; the number is its exit code. */
export async function runGenerate(
  values: GenerateValues,
  io: Io,
  invocation: Invocation,
): Promise<number> {
  checkValues(values, io);
  using model = await openModel(values);
  const { maxPositionEmbeddings: context, vocabSize } = model.checkpoint.config;
  checkEndTokens(values.eos, vocabSize);
  if (values.maxTokens >= context) {
    io.warn(
      `--max-tokens ${values.maxTokens} exceeds what the model's context of ${context} tokens leaves`,
      "answers end where prompt and new tokens fill the context",
    );
  }
  const tokenizer = values.stop.length > 0 ? await model.tokenizer() : await model.tokenizerIfAny();
  const decoding = new Decoding(model, tokenizer, values);
  const read = readPrompts(values, io, () => model.tokenizer());

  const { format } = invocation;
  if (format === "jsonl" || format === "csv") {
    using report = openRows(io, invocation, model.device);
    return await writeRows(decoding.run(read), values.numReturn > 1, undefined, io, report);
  }
  const prompts = await Array.fromAsync(read);
  const all = async function* () {
    yield* prompts;
  };
  if (format === "table" && prompts.length === 1 && values.numReturn === 1 && tokenizer) {
    return await streamText(decoding, all(), io, invocation);
  }
  using report = openRows(io, invocation, model.device);
  return await writeRows(decoding.run(all()), values.numReturn > 1, prompts.length, io, report);
}

function openRows(io: Io, invocation: Invocation, device: string): Report {
  return openReport(io, invocation, {
    schema: "parscale.generate/1",
    device,
    columns: [{ key: "id" }, { key: "finish_reason" }, { key: "text" }, { key: "error" }],
  });
}

function checkValues(values: GenerateValues, io: Io): void {
  const sampling = values.temperature > 0;
  if (values.numBeams > 1 && sampling) {
    throw new UsageError(
      "Cannot search beams and sample: found --num-beams with --temperature, expected one of them",
      { hints: ["drop one of the two flags"] },
    );
  }
  if (values.numReturn > 1 && !sampling && values.numReturn > values.numBeams) {
    throw new UsageError(
      `Cannot return ${values.numReturn} results: found ${values.numBeams} beams and no sampling, ` +
        "expected as many beams or a temperature",
      { hints: ["add --temperature 0.8, or --num-beams of at least --num-return"] },
    );
  }
  const idle: readonly (readonly [flag: string, given: boolean, missing: string])[] = [
    ["--top-k", values.topK > 0 && !sampling, "--temperature 0.8"],
    ["--top-p", values.topP < 1 && !sampling, "--temperature 0.8"],
    ["--min-p", values.minP > 0 && !sampling, "--temperature 0.8"],
    [
      "--early-stopping",
      values.earlyStopping !== "false" && values.numBeams === 1,
      "--num-beams 4",
    ],
    ["--length-penalty", values.lengthPenalty !== 1 && values.numBeams === 1, "--num-beams 4"],
  ];
  for (const [flag, given, missing] of idle) {
    if (given) io.warn(`${flag} will have no effect`, `add ${missing}, or drop ${flag}`);
  }
}

function checkEndTokens(eos: readonly number[], vocabSize: number): void {
  const wrong = eos.find((id) => id >= vocabSize);
  if (wrong === undefined) return;
  throw new UsageError(
    `Cannot use --eos: found ${wrong}, expected token ids from 0 to ${vocabSize - 1}`,
  );
}

/** Writes one prompt's continuation while it is produced. */
async function streamText(
  decoding: Decoding,
  prompts: AsyncIterable<Prompt>,
  io: Io,
  { out, overwrite }: Invocation,
): Promise<number> {
  const sink = openSink(io, out, overwrite);
  try {
    let last = "";
    for await (const event of decoding.run(prompts)) {
      if (event.kind === "text") sink.write(last = event.text);
      if (event.kind === "failed") throw event.error;
    }
    if (!last.endsWith("\n")) sink.write("\n");
    sink.commit();
  } finally {
    sink.abandon();
  }
  return 0;
}

/** Writes prompts, which may have `several` sequences each, in input order; 1 when some failed. */
async function writeRows(
  events: ReturnType<Decoding["run"]>,
  several: boolean,
  total: number | undefined,
  io: Io,
  report: Report,
): Promise<number> {
  using progress = startProgress(io, { label: "Generating", unit: "rows", total });
  const rows = new Map<number, readonly Record<string, unknown>[]>();
  const nested = several && ["json", "jsonl"].includes(report.invocation.format);
  let failed = 0;
  let written = 0;
  for await (const event of events) {
    const { kind, at, prompt } = event;
    if (kind === "failed") {
      failed++;
      rows.set(at, [{ id: prompt.id, error: failureOf(event.error) }]);
    }
    if (kind === "done") {
      const { sequences } = event;
      rows.set(
        at,
        nested
          ? [{ id: prompt.id, sequences, stats: statsOf(prompt, sequences) }]
          : sequences.map((one) => ({ id: prompt.id, ...one, stats: statsOf(prompt, [one]) })),
      );
    }
    for (let next; (next = rows.get(written)); written++) {
      rows.delete(written);
      for (const row of next) report.row(row);
      progress.update(written + 1);
    }
  }
  if (written === 0) io.warn("there are no prompts in the input");
  await report.finish();
  return failed > 0 ? 1 : 0;
}

function statsOf(prompt: Prompt, sequences: readonly Sequence[]): Record<string, number> {
  return {
    prompt_tokens: prompt.tokens.length,
    new_tokens: sequences.reduce((sum, { tokens }) => sum + tokens.length, 0),
  };
}
