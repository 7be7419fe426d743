/**
 * Streams by load: Poisson arrivals on `parscale serve` with 1, 4, or as many streams as the load allows.
 *
 *     deno run -A tests/bench/auto_streams.ts [--seconds 8] [--rounds 3] [--headroom 2]
 *
 * The model has the width of SmolLM2-135M and a third of its layers, random weights and a random adapter
 * of 4 streams, in 4 bits. First the time per token of a lone answer with 4 streams, which times
 * `--headroom` becomes --target-tpot, and the most answers with 4 streams per second; then 0.05, half,
 * and 1.2 of that.
 * All modes get the same arrivals, and take turns.
 */
import { parseArgs } from "@std/cli/parse-args";
import { copyFileSync } from "node:fs";
import { RandomStream } from "../../core/base/random.ts";
import { CHAT_MODEL, makeAdapter, TestServer } from "../cli/serve_testing.ts";
import { randomFolder, smollm2 } from "./random_model.ts";

const flags = parseArgs(Deno.args, { string: ["seconds", "rounds", "headroom"] });
const seconds = Number(flags.seconds ?? 8), rounds = Number(flags.rounds ?? 3);
const headroom = Number(flags.headroom ?? 2);

const STREAMS = 4, PROMPT = 16, ANSWER = 16, CLIENTS = 8;

/** Arrivals before those that are measured, in seconds. */
const WARM_UP = 5;

/** Shares of the capacity with 4 streams; the first lasts longer, since it has few arrivals. */
const LOADS = [["idle", 0.05, 2], ["half", 0.5, 1], ["overload", 1.2, 1]] as const;

interface Answer {
  /** Milliseconds to the first token, and between two tokens. */
  readonly first: number;
  readonly token: number;
  readonly streams: number;
}

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

let asked = 0;

/** Sends a prompt that no other has. */
async function ask(server: TestServer, streams: number | "auto"): Promise<Answer> {
  const seed = asked++;
  const body = {
    prompt: Array.from({ length: PROMPT }, (_, i) => 1 + (seed * 7919 + i * 104729) % 400),
    max_tokens: ANSWER,
    temperature: 0,
    ignore_eos: true,
    stream: true,
    logprobs: 0, // a chunk for every token, even where its text is not complete
    parscale: { streams },
  };
  const began = performance.now();
  const response = await server.post("/v1/completions", body);
  const times: number[] = [];
  let text = "";
  for await (const part of response.body!.pipeThrough(new TextDecoderStream())) {
    // A comment says that the prompt waits.
    if (!part.startsWith(":")) times.push(performance.now());
    text += part;
  }
  const [, used] = /"parscale":\{"streams":(\d+)\}/.exec(text) ?? [];
  if (used === undefined) throw new Error(text.slice(-500));
  const first = times[0]! - began;
  return { first, token: (times.at(-1)! - times[0]!) / (ANSWER - 1), streams: Number(used) };
}

/** Answers per second of clients that send one request after another. */
async function capacityOf(server: TestServer): Promise<number> {
  const began = performance.now(), end = began + 15_000;
  let count = 0;
  await Promise.all(Array.from({ length: CLIENTS }, async () => {
    for (; performance.now() < end; count++) await ask(server, STREAMS);
  }));
  return 1000 * count / (performance.now() - began);
}

/** Answers to Poisson arrivals, without those of the warm-up. */
async function arrivals(
  server: TestServer,
  streams: number | "auto",
  rate: number,
  { duration, seed }: { readonly duration: number; readonly seed: number },
): Promise<Answer[]> {
  const random = new RandomStream(seed);
  const answers: Promise<Answer>[] = [];
  const began = performance.now();
  let at = 0;
  for (;;) {
    at += -Math.log(1 - random.uniform()) / rate;
    if (at > WARM_UP + duration) break;
    await sleep(Math.max(0, began + 1000 * at - performance.now()));
    const answer = ask(server, streams);
    if (at > WARM_UP) answers.push(answer);
    else answer.catch(() => {});
  }
  return await Promise.all(answers);
}

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)]!;
}

function row(load: string, mode: number | "auto", answers: readonly Answer[]): string {
  const first = answers.map(({ first }) => first), token = answers.map(({ token }) => token);
  const times = [first, token].flatMap((values) => [0.5, 0.95].map((p) => quantile(values, p)));
  const share = answers.filter(({ streams }) => streams === STREAMS).length / answers.length;
  const cells = [
    load,
    mode,
    answers.length,
    ...times.map((ms) => `${ms.toFixed(0)} ms`),
    `${(100 * share).toFixed(0)}%`,
  ];
  return `| ${cells.join(" | ")} |`;
}

const folder = await Deno.makeTempDir({ prefix: "parscale-bench-" });
try {
  const model = `${folder}/model`;
  const config = {
    ...smollm2(1),
    vocabSize: 8192,
    numHiddenLayers: 10,
    maxPositionEmbeddings: 2048,
  };
  randomFolder(config, "smollm2-third", model);
  for (const name of ["tokenizer.json", "tokenizer_config.json"]) {
    copyFileSync(`${CHAT_MODEL}/${name}`, `${model}/${name}`);
  }
  const adapter = await makeAdapter(model, STREAMS, `${folder}/adapter`);
  const args = ["--model", model, "--adapter", `p4=${adapter}`, "--quantize", "q4"];
  const more = ["--no-weight-cache", "--prefix-cache", "0", "--max-batch", String(CLIENTS)];
  let capacity: number, lone: number;
  {
    await using server = await TestServer.start([...args, ...more]);
    const alone: Answer[] = [];
    for (let i = 0; i < 8; i++) alone.push(await ask(server, STREAMS));
    lone = quantile(alone.map(({ token }) => token), 0.5);
    capacity = await capacityOf(server);
  }
  const target = lone * headroom;
  console.log(
    `P=${STREAMS}: ${lone.toFixed(1)} ms per token alone, ${capacity.toFixed(2)} answers/s of ` +
      `${PROMPT} + ${ANSWER} tokens; --target-tpot ${target.toFixed(1)}ms`,
  );
  await using server = await TestServer.start([
    ...args,
    ...more,
    ...["--streams", "auto", "--target-tpot", `${target.toFixed(1)}ms`],
  ]);
  console.log("| load | streams | answers | first p50 | first p95 | token p50 | token p95 | P=4 |");
  console.log("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
  for (const [load, share, longer] of LOADS) {
    const modes = [1, STREAMS, "auto"] as const;
    const answers = new Map(modes.map((mode): [typeof mode, Answer[]] => [mode, []]));
    for (let seed = 1; seed <= rounds; seed++) {
      for (const mode of modes) {
        const span = { duration: seconds * longer, seed };
        answers.get(mode)!.push(...await arrivals(server, mode, share * capacity, span));
        await sleep(1000);
      }
    }
    for (const mode of modes) console.log(row(load, mode, answers.get(mode)!));
  }
} finally {
  await Deno.remove(folder, { recursive: true });
}
