/**
 * Decoding and prefill on the cpu device, beside PyTorch and llama.cpp where they are given.
 *
 *   deno run -A tests/bench/decode.ts [--shape qwen2.5-0.5b|smollm2-135m] [--streams 1,2,4,8]
 *       [--quantize none,q8,q4] [--block 32] [--cached 1000] [--rounds 3] [--threads 2] [--no-prefill]
 *       [--python PYTHON --torch bench_torch.py] [--llama FOLDER_OF_PROGRAMS]
 *
 * Engines take turns, round by round, so that a busy machine slows them alike; the table holds medians
 * and ratios of medians. Weights are random and made on the fly. The others must fill the cache by
 * computing, which takes minutes for many streams: a smaller --cached helps there. `llama_native.sh`
 * prints the folder of llama.cpp; P streams are P sequences there, which all compute logits.
 */
import { parseArgs } from "@std/cli/parse-args";
import { Engine } from "../../core/generate/engine.ts";
import { CpuDevice } from "../../core/runtime/onnxruntime/cpu.ts";
import { GGUF_TYPES, randomGguf } from "./gguf.ts";
import { randomWeights, SHAPES } from "./random_model.ts";
import { medianOf } from "../../core/base/statistics.ts";

const STEPS = 64;
const PREFILL = 512;

const flags = parseArgs(Deno.args, {
  string: "shape streams quantize block rounds threads cached python torch llama".split(" "),
  boolean: ["prefill"],
  negatable: ["prefill"],
  default: {
    shape: "qwen2.5-0.5b",
    cached: "1000",
    streams: "1,2,4,8",
    quantize: "none,q8,q4",
    block: "32",
    rounds: "3",
    threads: "2",
    prefill: true,
  },
});
const list = (text: string) => text.split(",");
const CACHED = Number(flags.cached);
const SHAPE = flags.shape as keyof typeof SHAPES;

interface Runner {
  readonly name: string;
  /** Milliseconds per decoded token, once for each of a few steps. */
  decode(): Promise<number[]>;
  /** Tokens of a prompt per second; absent where it is not measured. */
  prefill?(): Promise<number>;
  close(): void;
}

/** Ours: one open model, timed again in every round. */
function ours(streams: number, kind: string): Runner {
  const config = SHAPES[SHAPE](streams);
  const matrices = kind === "none"
    ? { kind: "f32" as const }
    : { kind: kind as "q8" | "q4", block: Number(flags.block) };
  const device = new CpuDevice({ threads: Number(flags.threads), matrices });
  const engine = new Engine(device, config, randomWeights(config, SHAPE));
  const cache = engine.createCache(1, Math.max(PREFILL, CACHED + STEPS + 2));
  const step = (tokens: number[], start: number) =>
    engine.forward(cache, { ids: [tokens], start: [start], select: [tokens.length - 1] });
  return {
    name: `parscale ${kind === "none" ? "f32" : kind}`,
    async decode() {
      await step([1], CACHED);
      const times: number[] = [];
      for (let i = 0; i < STEPS; i++) {
        const started = performance.now();
        await step([i], CACHED + 1 + i);
        times.push(performance.now() - started);
      }
      return times;
    },
    async prefill() {
      const tokens = Array.from({ length: PREFILL / 2 }, (_, i) => i);
      await step(tokens, 0);
      const started = performance.now();
      await step(tokens, 0);
      await step(tokens, tokens.length);
      return PREFILL / ((performance.now() - started) / 1000);
    },
    close: () => device.close(),
  };
}

/** PyTorch, one process per measurement; its script prints one JSON line. */
function torch(streams: number): Runner {
  const run = async (what: string, prompt: number, steps: number) => {
    const args = [
      [flags.torch!, "--preset", "0.5B", "--P", String(streams), "--batch", "1"],
      ["--prompt", String(prompt), "--new", String(steps), "--device", "cpu", "--dtype", "f32"],
      ["--modes", "eager", "--what", what, "--warm", "1", "--reps", "1"],
    ].flat();
    const env = { OMP_NUM_THREADS: flags.threads };
    const { stdout, success, stderr } = await new Deno.Command(flags.python!, { args, env })
      .output();
    const text = new TextDecoder();
    if (!success) throw new Error(text.decode(stderr));
    const line = text.decode(stdout).trim().split("\n").find((line) => line.includes(`"${what}"`));
    return JSON.parse(line!) as Record<string, number>;
  };
  return {
    name: "torch f32",
    decode: async () => [(await run("decode", CACHED, STEPS)).ms_per_token!],
    prefill: async () => (await run("prefill", PREFILL, 1)).tokens_per_s!,
    close() {},
  };
}

/** llama.cpp's own benchmarks, a process per measurement. */
function llama(streams: number, kind: string): Runner {
  const type = GGUF_TYPES[kind]!;
  const common = ["-m", randomGguf(SHAPE, type), "-t", flags.threads];
  const run = async (program: string, args: readonly string[]) => {
    const command = new Deno.Command(`${flags.llama}/${program}`, { args: [...common, ...args] });
    const { stdout, success, stderr } = await command.output();
    const text = new TextDecoder();
    if (!success) throw new Error(text.decode(stderr));
    return text.decode(stdout);
  };
  const rate = async (args: readonly string[]): Promise<number> =>
    JSON.parse(await run("llama-bench", [...args, "-r", "1", "-o", "json"]))[0].avg_ts;
  const decode = async () => {
    if (streams === 1) {
      return 1000 / await rate(["-p", "0", "-n", String(STEPS), "-d", String(CACHED)]);
    }
    const sizes = ["-c", String(streams * (CACHED + STEPS)), "-npp", String(CACHED)];
    const counts = ["-ntg", String(STEPS), "-npl", String(streams), "--output-format", "jsonl"];
    const text = await run("llama-batched-bench", [...sizes, ...counts]);
    const line = text.split("\n").find((line) => line.startsWith("{"))!;
    return 1000 * streams / JSON.parse(line).speed_tg;
  };
  return {
    name: `llama.cpp ${type}`,
    decode: async () => [await decode()],
    // Its sequences would each compute the prompt, so only one stream compares.
    ...(streams === 1 && { prefill: () => rate(["-p", String(PREFILL), "-n", "0"]) }),
    close() {},
  };
}

console.log(`${flags.threads} threads, medians of ${flags.rounds} rounds`);
for (const streams of list(flags.streams).map(Number)) {
  const kinds = list(flags.quantize);
  const runners = kinds.map((kind) => ours(streams, kind));
  if (flags.llama) { for (const kind of kinds) runners.push(llama(streams, kind)); }
  if (flags.torch && flags.python) runners.push(torch(streams));
  const decode = runners.map((): number[] => []);
  const prefill = runners.map((): number[] => []);
  for (let round = 0; round < Number(flags.rounds); round++) {
    for (const [i, runner] of runners.entries()) {
      decode[i]!.push(...await runner.decode());
      if (flags.prefill && runner.prefill) prefill[i]!.push(await runner.prefill());
    }
  }
  const torchMs = flags.torch ? medianOf(decode.at(-1)!) : undefined;
  runners.forEach((runner, i) => {
    const ms = medianOf(decode[i]!);
    const speed = prefill[i]!.length > 0
      ? `  prefill ${medianOf(prefill[i]!).toFixed(0)} tokens/s`
      : "";
    const beside = torchMs === undefined ? "" : `  ${(torchMs / ms).toFixed(2)}x torch`;
    console.log(
      `P=${streams}  ${runner.name.padEnd(15)} ${ms.toFixed(1).padStart(7)} ms/token ` +
        `(least ${Math.min(...decode[i]!).toFixed(1)})${beside}${speed}`,
    );
    runner.close();
  });
}
