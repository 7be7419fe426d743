/**
 * `parscale serve` beside llama.cpp: eight concurrent requests on the Qwen2.5-0.5B shape in 4 bits.
 *
 *   deno run -A tests/bench/serve_llama.ts --llama FOLDER_WITH_node-llama-cpp [--streams 1,4] [--rounds 3]
 *
 * Our side answers over HTTP, streamed. llama.cpp has eight sequences in one context and no HTTP; P streams
 * are P sequences there, see `llama_serve.ts`. Both stay open and take turns, round by round. Prints the
 * median time to the first token over requests and rounds, and the tokens per second after it. Weights
 * are random; files are made once, in the system's temporary folder.
 */
import { parseArgs } from "@std/cli/parse-args";
import { runParscale } from "../cli/run.ts";
import { CHAT_MODEL, TestServer } from "../cli/serve_testing.ts";
import { writeGguf } from "./gguf.ts";
import { isThere, qwen05b, randomFolder } from "./random_model.ts";

const flags = parseArgs(Deno.args, {
  string: ["llama", "streams", "rounds", "prompt", "tokens"],
  default: { streams: "1,4", rounds: "3", prompt: "64", tokens: "32" },
});
const TEMPORARY = Deno.env.get("TMPDIR") ?? "/tmp";
const RUN = ["run", "-A", "--no-lock", "--node-modules-dir=manual"];
const SEQUENCES = 8, PROMPT = Number(flags.prompt), TOKENS = Number(flags.tokens);

/** What a round of eight requests took. */
interface Round {
  readonly firstMs: readonly number[];
  readonly totalMs: number;
}

interface Engine extends AsyncDisposable {
  readonly name: string;
  round(seed: number): Promise<Round>;
}

/** The shape as a checkpoint in 4 bits, with random ParScale parameters for P > 1. */
async function checkpoint(streams: number): Promise<string> {
  const plain = `${TEMPORARY}/parscale-bench-serve`, out = `${plain}-p${streams}-q4`;
  if (isThere(`${out}/config.json`)) return out;
  const config = qwen05b(1);
  randomFolder(config, "qwen2.5-0.5b", plain);
  Deno.copyFileSync(`${CHAT_MODEL}/tokenizer_config.json`, `${plain}/tokenizer_config.json`);
  Deno.writeTextFileSync(`${plain}/tokenizer.json`, wideTokenizer(config.vocabSize));
  let source = plain;
  if (streams > 1) {
    source = `${plain}-p${streams}`;
    await convert(["--model", plain, "--streams", String(streams), "--out", source, "--overwrite"]);
  }
  await convert(["--model", source, "--quantize", "q4", "--out", out]);
  return out;
}

/** A small tokenizer with a text for every id, since a stream has no frame for a token without text. */
function wideTokenizer(size: number): string {
  const tokenizer = JSON.parse(Deno.readTextFileSync(`${CHAT_MODEL}/tokenizer.json`));
  const { vocab } = tokenizer.model;
  const used = new Set<unknown>(Object.values(vocab));
  for (const { id } of tokenizer.added_tokens) used.add(id);
  for (let id = 0; id < size; id++) if (!used.has(id)) vocab[`x${id}`] = id;
  return JSON.stringify(tokenizer);
}

async function convert(args: readonly string[]): Promise<void> {
  const { code, stderr } = await runParscale(["convert", ...args]);
  if (code !== 0) throw new Error(stderr);
}

/** The server, on a port of its own. */
async function ours(streams: number): Promise<Engine> {
  const model = await checkpoint(streams);
  const server = await TestServer.start([
    ...["--model", model, "--max-batch", String(SEQUENCES)],
    ...["--max-model-len", String(PROMPT + TOKENS + 8), "--prefix-cache", "0"],
  ]);
  const request = async (seed: number, index: number, started: number): Promise<number> => {
    const prompt = Array.from(
      { length: PROMPT },
      (_, at) => 1 + (seed * 7919 + index * 31 + at * 17) % 400,
    );
    const body = { prompt, max_tokens: TOKENS, temperature: 0, ignore_eos: true, stream: true };
    const response = await server.post("/v1/completions", body);
    let first = 0;
    for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
      if (first === 0 && chunk.includes("data: {")) first = performance.now() - started;
    }
    return first;
  };
  return {
    name: `parscale P=${streams}`,
    async round(seed) {
      const started = performance.now();
      const requests = Array.from({ length: SEQUENCES }, (_, i) => request(seed, i, started));
      const firstMs = await Promise.all(requests);
      return { firstMs, totalMs: performance.now() - started };
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/** llama.cpp in a process that answers a line with a line. */
function llama(folder: string, streams: number): Engine {
  const path = `${TEMPORARY}/parscale-bench-Q4_0.gguf`;
  if (!isThere(path)) writeGguf(path, qwen05b(1), "Q4_0");
  const script = new URL("./llama_serve.ts", import.meta.url).pathname;
  const numbers = [streams, SEQUENCES, PROMPT, TOKENS].map(String);
  const child = new Deno.Command(Deno.execPath(), {
    args: [...RUN, script, folder, path, ...numbers],
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
    cwd: folder,
  }).spawn();
  const writer = child.stdin.getWriter();
  const lines = linesOf(child.stdout);
  const ready = lines.next();
  return {
    name: `llama.cpp P=${streams}`,
    async round(seed) {
      await ready;
      await writer.write(new TextEncoder().encode(`${seed}\n`));
      const { value, done } = await lines.next();
      if (done) throw new Error("llama.cpp ended");
      return JSON.parse(value);
    },
    async [Symbol.asyncDispose]() {
      await writer.close().catch(() => {}); // it may have ended
      await child.status;
    },
  };
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of stream.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop()!;
    yield* lines;
  }
}

const median = (values: readonly number[]) =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;

console.log(
  `${SEQUENCES} requests at once, ${PROMPT} + ${TOKENS} tokens, ${flags.rounds} rounds in turns`,
);
for (const streams of flags.streams.split(",").map(Number)) {
  await using stack = new AsyncDisposableStack();
  const engines = [stack.use(await ours(streams))];
  if (flags.llama) engines.push(stack.use(llama(flags.llama, streams)));
  const rounds = engines.map((): Round[] => []);
  for (let round = 0; round <= Number(flags.rounds); round++) {
    for (const [i, engine] of engines.entries()) {
      const result = await engine.round(round);
      if (round > 0) rounds[i]!.push(result); // the first warms up
    }
  }
  for (const [i, { name }] of engines.entries()) {
    const first = median(rounds[i]!.flatMap(({ firstMs }) => firstMs));
    const rate = median(
      rounds[i]!.map(({ firstMs, totalMs }) =>
        SEQUENCES * (TOKENS - 1) / (totalMs - Math.max(...firstMs)) * 1000
      ),
    );
    console.log(
      `${name.padEnd(14)} first token ${(first / 1000).toFixed(2)} s, then ${
        rate.toFixed(1)
      } tok/s`,
    );
  }
}
