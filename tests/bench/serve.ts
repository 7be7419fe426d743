/**
 * Load on `parscale serve` with a tiny model: throughput beside `generate`, and many clients at once.
 *
 *     deno run -A tests/bench/serve.ts [--seconds 120] [--clients 64] [--model FOLDER]
 *
 * First 16 concurrent requests against `generate --batch 16` on the same prompts; then clients that send
 * one request after another, streamed and whole, short and long. Prints memory over time, the slowest
 * and the mean client, and the time to the first token.
 */
import { parseArgs } from "@std/cli/parse-args";
import { CHAT_MODEL, TestServer } from "../cli/serve_testing.ts";
import { runParscale } from "../cli/run.ts";

const flags = parseArgs(Deno.args, { string: ["seconds", "clients", "model"] });
const seconds = Number(flags.seconds ?? 120), clients = Number(flags.clients ?? 64);
const model = flags.model ?? CHAT_MODEL;

/** Short and long answers: the rate is that of the difference, which has no start and no prefill. */
const SHORT = 200, LONG = 1200, BATCH = 16;

const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

/** Token ids, so that both sides do the same work. */
function promptOf(seed: number, length: number): number[] {
  return Array.from({ length }, (_, i) => 1 + (seed * 7919 + i * 104729) % 400);
}

/** tok/s from the time that answers of so many tokens take, the best of three each. */
async function rateOf(time: (tokens: number) => Promise<number>): Promise<number> {
  const best: Record<number, number> = { [SHORT]: Infinity, [LONG]: Infinity };
  for (let round = 0; round < 3; round++) {
    for (const tokens of [SHORT, LONG]) {
      best[tokens] = Math.min(best[tokens]!, await time(tokens));
    }
  }
  return BATCH * (LONG - SHORT) / (best[LONG]! - best[SHORT]!) * 1000;
}

/** tok/s of concurrent requests. */
async function servedRate(): Promise<number> {
  await using server = await TestServer.start(["--model", model, "--max-batch", String(BATCH)]);
  return await rateOf(async (tokens) => {
    const began = performance.now();
    await Promise.all(Array.from({ length: BATCH }, (_, i) =>
      server.complete({
        prompt: promptOf(i, 40),
        max_tokens: tokens,
        temperature: 0,
        ignore_eos: true,
      })));
    return performance.now() - began;
  });
}

/** tok/s of `generate`. */
function generatedRate(): Promise<number> {
  const rows = Array.from({ length: BATCH }, (_, i) => JSON.stringify({ tokens: promptOf(i, 40) }));
  return rateOf(async (tokens) => {
    const began = performance.now();
    const { code, stderr } = await runParscale([
      ...["generate", "--model", model, "--batch", String(BATCH)],
      ...["--max-tokens", String(tokens), "--ignore-eos", "--jsonl"],
    ], { stdin: rows.join("\n") });
    if (code !== 0) throw new Error(stderr);
    return performance.now() - began;
  });
}

/** Resident memory of a process, in MiB. */
function memoryOf(pid: number): number {
  const status = Deno.readTextFileSync(`/proc/${pid}/status`);
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)![1]) / 1024;
}

async function load(): Promise<void> {
  await using server = await TestServer.start(["--model", model, "--max-batch", "16"]);
  const end = performance.now() + 1000 * seconds;
  const done = new Array<number>(clients).fill(0), errors: string[] = [], waits: number[] = [];
  const memory: number[] = [];
  const watch = setInterval(() => memory.push(memoryOf(server.process.pid)), 1000);
  await Promise.all(done.map(async (_, client) => {
    for (let i = 0; performance.now() < end; i++) {
      const body = {
        prompt: promptOf(client * 1000 + i, 10 + (client * 37 + i * 11) % 200),
        max_tokens: 10 + (i * 13) % 40,
        seed: i,
        stream: client % 2 === 0,
        ignore_eos: true,
      };
      const began = performance.now();
      try {
        const response = await server.post("/v1/completions", body);
        const reader = response.body!.getReader();
        const first = await reader.read();
        waits.push(performance.now() - began);
        let text = new TextDecoder().decode(first.value);
        for (let part; !(part = await reader.read()).done;) {
          text += new TextDecoder().decode(part.value);
        }
        const failed = response.status !== 200 || text.includes('{"error"') ||
          body.stream && !text.includes("[DONE]");
        if (failed) errors.push(text.slice(-300));
        // Work done, in tokens: clients ask for different amounts.
        done[client]! += body.max_tokens;
      } catch (error) {
        errors.push(String(error));
      }
    }
  }));
  clearInterval(watch);
  waits.sort((a, b) => a - b);
  const mean = sum(done) / clients, half = Math.floor(memory.length / 2);
  const part = (values: readonly number[]) => sum(values) / values.length;
  console.log(`${clients} clients, ${seconds} s: ${errors.length} errors ${errors[0] ?? ""}`);
  console.log(`tokens/s ${(sum(done) / seconds).toFixed(0)}`);
  console.log(`slowest client / mean ${(Math.min(...done) / mean).toFixed(2)}`);
  console.log(
    `first byte p50 ${waits[waits.length >> 1]!.toFixed(0)} ms, ` +
      `p99 ${waits[Math.floor(waits.length * 0.99)]!.toFixed(0)} ms`,
  );
  console.log(
    `memory MiB: ${memory.filter((_, i) => i % 10 === 0).map((x) => x.toFixed(0)).join(" ")}`,
  );
  const growth = part(memory.slice(-10)) / part(memory.slice(half, half + 10)) - 1;
  console.log(`growth over the second half ${(100 * growth).toFixed(1)}%`);
}

const [served, generated] = [await servedRate(), await generatedRate()];
console.log(`serve, 16 at once: ${served.toFixed(0)} tok/s`);
console.log(
  `generate --batch 16: ${generated.toFixed(0)} tok/s; ratio ${(served / generated).toFixed(2)}`,
);
await load();
