/**
 * Prompt lookup on and off, in turns: milliseconds of a new token, and tokens of a step.
 *
 *   deno run -A tests/bench/speculation.ts --model FILE.gguf [--quantize q8] [--streams 1,4] [--prompts 12]
 *       [--tokens 160] [--speculate 7] [--threads 2] [--sequences 1]
 *
 * Chats ask for functions of HumanEval+ in ../shared/data as EvalPlus does, and decode greedily: answers
 * repeat names and phrases. Noise is random tokens continued at a temperature of 2: nothing repeats. Tokens
 * must be equal. The first token of an answer is left out, since it comes with the prompt. P streams are
 * those of the model, or random ones. Beside other programs the processor time is the better measure.
 */
import { cpuUsage } from "node:process";
import { parseArgs } from "@std/cli/parse-args";
import { GREEDY } from "../../core/base/sampling.ts";
import { RandomStream } from "../../core/base/random.ts";
import type { Engine } from "../../core/generate/engine.ts";
import type { GenerationRequest } from "../../core/generate/request.ts";
import { Scheduler } from "../../core/generate/scheduler.ts";
import { openModel } from "../../core/session/open.ts";
import { encodeChat } from "../../core/tokenizer/chat.ts";
import type { Tokenizer } from "../../core/tokenizer/types.ts";

const flags = parseArgs(Deno.args, {
  string: "model quantize streams prompts tokens speculate threads sequences".split(" "),
  default: { streams: "1", prompts: "12", tokens: "160", speculate: "7", threads: "2" },
});
const [count, maxTokens, speculate, threads, sequences] = [
  ...[flags.prompts, flags.tokens, flags.speculate, flags.threads, flags.sequences ?? "1"],
].map(Number) as [number, number, number, number, number];
const DATA = new URL("../../../shared/data/humaneval_plus/HumanEvalPlus.jsonl.gz", import.meta.url);
/** Words of EvalPlus. */
const ASK =
  "Please provide a self-contained Python script that solves the following problem in a " +
  "markdown code block:";
const START =
  "Below is a Python script with a self-contained function that solves the problem and " +
  "passes corresponding tests:\n```python\n";

interface Run {
  /** From the first token of the answer on. */
  ms: number;
  /** Of all threads. */
  cpuMs: number;
  readonly tokens: number[][];
  drafted: number;
  kept: number;
}

/** Prompts, spread over the benchmark. */
async function chats(tokenizer: Tokenizer): Promise<number[][]> {
  const file = await Deno.open(DATA);
  const text = await new Response(file.readable.pipeThrough(new DecompressionStream("gzip")))
    .text();
  const problems = text.trim().split("\n").map((line) => JSON.parse(line).prompt.trim() as string);
  const step = Math.floor(problems.length / count);
  return await Array.fromAsync({ length: count }, (_, i) =>
    encodeChat(tokenizer, [
      { role: "user", content: `${ASK}\n\`\`\`\n${problems[i * step]}\n\`\`\`\n` },
      { role: "assistant", content: START },
    ], { continueFinalMessage: true }));
}

function noise(engine: Engine): number[][] {
  const random = new RandomStream(1, "noise");
  const token = () => random.integer(engine.config.vocabSize);
  return Array.from({ length: count }, () => Array.from({ length: 100 }, token));
}

async function run(
  engine: Engine,
  prompts: readonly number[][],
  temperature: number,
  speculate: number,
): Promise<Run> {
  using scheduler = new Scheduler(engine, { batch: prompts.length, speculate });
  const { eosTokenIds } = engine.config, sampling = { ...GREEDY, temperature };
  prompts.forEach((tokens, i) => {
    const random = new RandomStream(0, i);
    const request: GenerationRequest = { tokens, maxTokens, sampling, random, eosTokenIds };
    scheduler.add(i, request);
  });
  const result: Run = { ms: 0, cpuMs: 0, tokens: prompts.map(() => []), drafted: 0, kept: 0 };
  let began = performance.now(), cpu = cpuUsage();
  while (!scheduler.isIdle) {
    const isBegun = result.tokens.every(({ length }) => length > 0);
    for await (const event of scheduler.round()) {
      if (event.kind === "failed") throw event.error;
      if (event.kind !== "token") continue;
      result.tokens[event.index]!.push(event.token);
      result.drafted += event.draft?.tokens ?? 0;
      result.kept += Number(event.draft?.isKept ?? false);
    }
    if (!isBegun) [began, cpu] = [performance.now(), cpuUsage()];
    result.ms = performance.now() - began;
  }
  const { user, system } = cpuUsage(cpu);
  result.cpuMs = (user + system) / 1000;
  return result;
}

async function compare(name: string, engine: Engine, prompts: number[][], temperature: number) {
  const sums = [0, 0], cpus = [0, 0];
  let tokens = 0, drafted = 0, kept = 0;
  for (let at = 0; at + sequences <= prompts.length; at += sequences) {
    const some = prompts.slice(at, at + sequences);
    // Which one is first changes, so that a machine that grows slower is slower for both.
    const order = at / sequences % 2 === 0 ? [0, 1] : [1, 0], runs: Run[] = [];
    for (const i of order) runs[i] = await run(engine, some, temperature, i * speculate);
    const [off, on] = runs as [Run, Run];
    if (JSON.stringify(off.tokens) !== JSON.stringify(on.tokens)) throw new Error("tokens differ");
    runs.forEach(({ ms, cpuMs }, i) => (sums[i]! += ms, cpus[i]! += cpuMs));
    tokens += off.tokens.reduce((sum, { length }) => sum + length - 1, 0);
    drafted += on.drafted;
    kept += on.kept;
  }
  const [off, on] = sums.map((ms) => ms / tokens) as [number, number];
  console.log(
    `${name}: ${off.toFixed(1)} ms a token without, ${on.toFixed(1)} with: ${
      (off / on).toFixed(2)
    }x, of processor time ${(cpus[0]! / cpus[1]!).toFixed(2)}x; ${
      (tokens / (tokens - kept)).toFixed(2)
    } tokens a step, ${kept} of ${drafted} drafted kept`,
  );
}

if (!flags.model) throw new Error("--model FILE is missing");
const quantize = flags.quantize as "q8" | undefined;
using session = await openModel(flags.model, {
  device: "cpu",
  threads,
  sharesBackbone: true,
  speculate,
  ...(quantize && { quantize }),
});
for (const P of flags.streams.split(",").map(Number)) {
  const { engine } = P === session.config.streams ? session : session.withStreams(P, 0);
  await run(engine, noise(engine).slice(0, 1), 0, speculate); // loads the weights
  if (await Deno.stat(DATA).catch(() => undefined)) {
    await compare(`P=${P} chats`, engine, await chats(session.tokenizer), 0);
  }
  await compare(`P=${P} noise`, engine, noise(engine), 2);
}
