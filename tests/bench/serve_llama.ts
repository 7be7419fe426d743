/**
 * `parscale serve` beside `llama-server`: eight concurrent requests over HTTP, streamed, in 4 or 8 bits.
 *
 *   deno run -A tests/bench/serve_llama.ts --llama FOLDER_OF_PROGRAMS [--model FILE.gguf] [--streams 1,4]
 *       [--shape qwen2.5-0.5b|smollm2-135m] [--type Q4_0|Q8_0] [--rounds 3] [--busy]
 *
 * Both open the same GGUF file, made with random weights where none is given, and take turns, round by
 * round; `llama_native.sh` prints the folder. Prints the median time to the first token over requests and
 * rounds, the tokens per second after it, and the processor time per token. llama.cpp has one stream.
 * With `--busy` every round is run again beside two busy loops: threads that wait in a busy loop take the
 * processor from other programs, so the processor time of a token must stay the same.
 */
import { parseArgs } from "@std/cli/parse-args";
import { runParscale } from "../cli/run.ts";
import { TestServer } from "../cli/serve_testing.ts";
import { type GgufType, randomGguf } from "./gguf.ts";
import type { SHAPES } from "./random_model.ts";
import { medianOf } from "../../core/base/statistics.ts";

const flags = parseArgs(Deno.args, {
  boolean: ["busy"],
  string: ["llama", "model", "shape", "type", "streams", "rounds", "prompt", "tokens"],
  default: {
    shape: "qwen2.5-0.5b",
    type: "Q4_0",
    streams: "1,4",
    rounds: "3",
    prompt: "64",
    tokens: "32",
  },
});
const MODEL = flags.model ??
  randomGguf(flags.shape as keyof typeof SHAPES, flags.type as GgufType);
const SEQUENCES = 8, PROMPT = Number(flags.prompt), TOKENS = Number(flags.tokens);

/** Times of a round of eight requests. */
interface Round {
  readonly firstMs: readonly number[];
  readonly totalMs: number;
  readonly cpuMs: number;
}

interface Engine extends AsyncDisposable {
  readonly name: string;
  readonly url: string;
  readonly pid: number;
  /** In the requests: of our server the adapter with its streams. */
  readonly model?: string;
}

/** Eight requests at once. */
async function roundOf({ url, pid, model }: Engine, seed: number): Promise<Round> {
  const started = performance.now(), cpu = cpuMs(pid);
  const firstMs = await Promise.all(Array.from({ length: SEQUENCES }, async (_, index) => {
    const at = (i: number) => 1 + (seed * 7919 + index * 31 + i * 17) % 400;
    const prompt = Array.from({ length: PROMPT }, (_, i) => at(i));
    const sampling = { max_tokens: TOKENS, temperature: 0, ignore_eos: true, stream: true };
    const body = JSON.stringify({ model, prompt, ...sampling });
    const headers = { "content-type": "application/json" };
    const response = await fetch(`${url}/v1/completions`, { method: "POST", headers, body });
    let first = 0;
    for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
      if (first === 0 && chunk.includes("data: {")) first = performance.now() - started;
    }
    return first;
  }));
  return { firstMs, totalMs: performance.now() - started, cpuMs: cpuMs(pid) - cpu };
}

/** The same beside two busy loops. */
async function besideBusyLoops<T>(measure: () => Promise<T>): Promise<T> {
  const command = new Deno.Command(Deno.execPath(), { args: ["eval", "for (;;);"] });
  const loops = [command.spawn(), command.spawn()];
  try {
    return await measure();
  } finally {
    loops.forEach((loop) => loop.kill());
    await Promise.all(loops.map(({ status }) => status));
  }
}

/** Prints what rounds of an engine took. */
function report(name: string, rounds: readonly Round[]): void {
  const first = medianOf(rounds.flatMap(({ firstMs }) => firstMs));
  const rate = medianOf(
    rounds.map(({ firstMs, totalMs }) =>
      SEQUENCES * (TOKENS - 1) / (totalMs - Math.max(...firstMs)) * 1000
    ),
  );
  const cpu = medianOf(rounds.map(({ cpuMs }) => cpuMs / (SEQUENCES * TOKENS)));
  console.log(
    `${name.padEnd(20)} first token ${(first / 1000).toFixed(2)} s, then ${
      rate.toFixed(1)
    } tok/s, ${cpu.toFixed(1)} ms of processor time per token`,
  );
}

/** Processor time of a process so far: fields 14 and 15 of `stat`, in ticks of 10 ms. */
function cpuMs(pid: number): number {
  const fields = Deno.readTextFileSync(`/proc/${pid}/stat`).split(") ")[1]!.split(" ");
  return 10 * (Number(fields[11]) + Number(fields[12]));
}

async function ours(streams: number): Promise<Engine> {
  let adapter: string[] = [];
  if (streams > 1) {
    const folder = await Deno.makeTempDir();
    const args = ["--model", MODEL, "--streams", String(streams), "--prefix-init", "normal"];
    const out = ["--introduced-only", "--out", `${folder}/adapter`];
    const { code, stderr } = await runParscale(["convert", ...args, ...out]);
    if (code !== 0) throw new Error(stderr);
    adapter = ["--adapter", `streams=${folder}/adapter`];
  }
  const server = await TestServer.start([
    ...["--model", MODEL, ...adapter, "--max-batch", String(SEQUENCES)],
    ...["--max-model-len", String(PROMPT + TOKENS + 8), "--prefix-cache", "0"],
  ], Deno.env.toObject()); // AVX-512 is hidden by the environment
  const { url, process: { pid } } = server;
  return {
    name: `parscale P=${streams}`,
    url,
    pid,
    ...(streams > 1 && { model: "streams" }),
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

async function llama(folder: string): Promise<Engine> {
  const port = 20_000 + Math.floor(Math.random() * 20_000), url = `http://127.0.0.1:${port}`;
  const child = new Deno.Command(`${folder}/llama-server`, {
    args: [
      ...["-m", MODEL, "-np", String(SEQUENCES), "-t", String(navigator.hardwareConcurrency)],
      ...["-c", String(SEQUENCES * (PROMPT + TOKENS + 8)), "--port", String(port)],
    ],
    stdout: "null",
    stderr: "null",
  }).spawn();
  const isReady = () => fetch(`${url}/health`).then(({ ok }) => ok, () => false);
  while (!await isReady()) await new Promise((resolve) => setTimeout(resolve, 200));
  return {
    name: "llama-server",
    url,
    pid: child.pid,
    async [Symbol.asyncDispose]() {
      child.kill();
      await child.status;
    },
  };
}

console.log(
  `${SEQUENCES} requests at once, ${PROMPT} + ${TOKENS} tokens, ${flags.rounds} rounds in turns`,
);
for (const streams of flags.streams.split(",").map(Number)) {
  await using stack = new AsyncDisposableStack();
  const engines = [stack.use(await ours(streams))];
  if (flags.llama) engines.push(stack.use(await llama(flags.llama)));
  const alone = engines.map((): Round[] => []), busy = engines.map((): Round[] => []);
  for (const engine of engines) await roundOf(engine, 0); // warms up
  for (let round = 1; round <= Number(flags.rounds); round++) {
    for (const [i, engine] of engines.entries()) alone[i]!.push(await roundOf(engine, round));
    if (!flags.busy) continue;
    for (const [i, engine] of engines.entries()) {
      // Other prompts: llama-server keeps those it has seen.
      busy[i]!.push(await besideBusyLoops(() => roundOf(engine, 1000 + round)));
    }
  }
  for (const [i, { name }] of engines.entries()) {
    report(name, alone[i]!);
    if (flags.busy) report(`${name}, busy`, busy[i]!);
  }
}
