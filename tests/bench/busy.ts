/**
 * Time and processor time per decoded token of a model, alone and beside two busy loops.
 *
 *   deno run -A tests/bench/busy.ts --model MODEL [--quantize q4] [--threads 2] [--rounds 3]
 *
 * Both states take turns. Threads that wait in a busy loop take the processor from other programs: the
 * processor time of a token must stay the same.
 */
import process from "node:process";
import { parseArgs } from "@std/cli/parse-args";
import { openModel } from "../../mod.ts";
import { medianOf } from "../../core/base/statistics.ts";

const flags = parseArgs(Deno.args, {
  string: ["model", "quantize", "threads", "rounds"],
  default: { quantize: "q4", threads: "2", rounds: "3" },
});
const PROMPT = "The quick brown fox jumps over the lazy dog. ".repeat(6);
const MAX_TOKENS = 48;
const BUSY_LOOP = ["eval", "for (;;);"];

using model = await openModel(flags.model!, {
  device: "cpu",
  quantize: flags.quantize as "q4",
  threads: Number(flags.threads),
});
const tokens = await model.encode(PROMPT);

/** Milliseconds and milliseconds of the processor per token, prefill included. */
async function measure(): Promise<{ readonly wall: number; readonly cpu: number }> {
  const started = performance.now(), before = process.cpuUsage();
  const { tokens: { length } } = await model.complete(tokens, { maxTokens: MAX_TOKENS });
  const { user, system } = process.cpuUsage(before);
  return { wall: (performance.now() - started) / length, cpu: (user + system) / 1000 / length };
}

async function besideBusyLoops() {
  const command = new Deno.Command(Deno.execPath(), { args: BUSY_LOOP });
  const loops = [command.spawn(), command.spawn()];
  try {
    return await measure();
  } finally {
    loops.forEach((loop) => loop.kill());
    await Promise.all(loops.map(({ status }) => status));
  }
}

await measure();
const alone = [], busy = [];
for (let round = 0; round < Number(flags.rounds); round++) {
  alone.push(await measure());
  busy.push(await besideBusyLoops());
}
for (const [name, runs] of Object.entries({ alone, busy })) {
  const [wall, cpu] = [
    medianOf(runs.map(({ wall }) => wall)),
    medianOf(runs.map(({ cpu }) => cpu)),
  ];
  console.log(`${name.padEnd(6)} ${wall.toFixed(1)} ms, ${cpu.toFixed(1)} ms of the processor`);
}
