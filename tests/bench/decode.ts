/**
 * Decoding and prefill of the Qwen2.5-0.5B shape on the cpu device, beside PyTorch where it is given.
 *
 *   deno run -A tests/bench/decode.ts [--streams 1,2,4,8] [--quantize none,q8,q4] [--block 32]
 *       [--cached 1000] [--rounds 3] [--threads 2] [--no-prefill]
 *       [--python PYTHON --torch bench_torch.py] [--llama FOLDER_WITH_node-llama-cpp]
 *
 * Engines take turns, round by round, so that a busy machine slows them alike; the table holds medians
 * and ratios of medians. Weights are random and made on the fly. The others must fill the cache by
 * computing, which takes minutes for many streams: a smaller --cached helps there.
 */
import { fileURLToPath } from "node:url";
import { parseArgs } from "@std/cli/parse-args";
import { Engine } from "../../core/generate/engine.ts";
import { CpuDevice } from "../../core/runtime/onnxruntime/cpu.ts";
import { type GgufType, writeGguf } from "./gguf.ts";
import { qwen05b, randomWeights } from "./random_model.ts";

const STEPS = 16;
const PREFILL = 512;

const flags = parseArgs(Deno.args, {
  string: [
    "streams",
    "quantize",
    "block",
    "rounds",
    "threads",
    "cached",
    "python",
    "torch",
    "llama",
  ],
  boolean: ["prefill"],
  negatable: ["prefill"],
  default: {
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

interface Runner {
  readonly name: string;
  /** Milliseconds per decoded token, once for each of a few steps. */
  decode(): Promise<number[]>;
  /** Tokens of a prompt per second; absent where it is not measured. */
  prefill?(): Promise<number>;
  close(): void;
}

const median = (values: readonly number[]) =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;

/** Ours: one open model, timed again in every round. */
function ours(streams: number, kind: string): Runner {
  const config = qwen05b(streams);
  const matrices = kind === "none"
    ? { kind: "f32" as const }
    : { kind: kind as "q8" | "q4", block: Number(flags.block) };
  const device = new CpuDevice({ threads: Number(flags.threads), matrices });
  const engine = new Engine(device, config, randomWeights(config, "qwen2.5-0.5b"));
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

/** llama.cpp in a process of its own, which times a few steps for every line it is sent. */
async function llama(streams: number, kind: string): Promise<Runner> {
  const type = ({ none: "F32", q8: "Q8_0", q4: "Q4_0" } as Record<string, GgufType>)[kind]!;
  const path = `${Deno.env.get("TMPDIR") ?? "/tmp"}/parscale-bench-${type}.gguf`;
  try {
    Deno.statSync(path);
  } catch {
    writeGguf(path, qwen05b(1), type);
  }
  const script = fileURLToPath(new URL("./llama.ts", import.meta.url));
  const process = new Deno.Command(Deno.execPath(), {
    args: [
      ["run", "-A", "--no-lock", "--node-modules-dir=manual", script, flags.llama!, path],
      [streams, flags.threads, CACHED, STEPS, PREFILL].map(String),
    ].flat(),
    cwd: flags.llama,
    stdin: "piped",
    stdout: "piped",
  }).spawn();
  const input = process.stdin.getWriter();
  const lines = process.stdout.pipeThrough(new TextDecoderStream()).getReader();
  await lines.read(); // it says so when its prompt is in the cache
  const ask = async (what: string) => {
    await input.write(new TextEncoder().encode(`${what}\n`));
    return JSON.parse((await lines.read()).value!);
  };
  return {
    name: `llama.cpp ${type}`,
    decode: () => ask("decode"),
    // Its sequences would each compute the prompt, so only one stream compares.
    ...(streams === 1 ? { prefill: () => ask("prefill") } : {}),
    close: () => process.kill(),
  };
}

console.log(`${flags.threads} threads, medians of ${flags.rounds} rounds`);
for (const streams of list(flags.streams).map(Number)) {
  const kinds = list(flags.quantize);
  const runners = kinds.map((kind) => ours(streams, kind));
  if (flags.llama) { for (const kind of kinds) runners.push(await llama(streams, kind)); }
  if (flags.torch && flags.python) runners.push(torch(streams));
  const decode = runners.map((): number[] => []);
  const prefill = runners.map((): number[] => []);
  for (let round = 0; round < Number(flags.rounds); round++) {
    for (const [i, runner] of runners.entries()) {
      decode[i]!.push(...await runner.decode());
      if (flags.prefill && runner.prefill) prefill[i]!.push(await runner.prefill());
    }
  }
  const torchMs = flags.torch ? median(decode.at(-1)!) : undefined;
  runners.forEach((runner, i) => {
    const ms = median(decode[i]!);
    const speed = prefill[i]!.length > 0
      ? `  prefill ${median(prefill[i]!).toFixed(0)} tokens/s`
      : "";
    const beside = torchMs === undefined ? "" : `  ${(torchMs / ms).toFixed(2)}x torch`;
    console.log(
      `P=${streams}  ${runner.name.padEnd(15)} ${ms.toFixed(1).padStart(7)} ms/token ` +
        `(least ${Math.min(...decode[i]!).toFixed(1)})${beside}${speed}`,
    );
    runner.close();
  });
}
