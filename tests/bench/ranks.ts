/**
 * Training as two ranks of one thread beside one rank of two threads, and what they exchange.
 *
 *   deno run -A tests/bench/ranks.ts [--rounds 5] [--steps 12]
 *
 * The model has 4 layers and 7 million parameters, P = 2; batch 8 rows of 128 tokens in micro-batches of
 * four. Runs take turns, round by round; the table holds medians of all steps but the first two of a
 * run, and the ratio of medians. Needs mpirun of Open MPI or MPICH.
 */
import { parseArgs } from "@std/cli/parse-args";
import { programLine } from "../cli/run.ts";
import { AS_ROOT, type Mpi, mpiLine, MPIS } from "../long/mpi.ts";
import { scratchConfig } from "./random_model.ts";
import { medianOf } from "../../core/base/statistics.ts";

const flags = parseArgs(Deno.args, {
  string: ["rounds", "steps"],
  default: { rounds: "5", steps: "12" },
});
const [rounds, steps] = [Number(flags.rounds), Number(flags.steps)];

const CONFIG = scratchConfig({
  vocab_size: 8192,
  hidden_size: 256,
  intermediate_size: 1024,
  num_hidden_layers: 4,
  num_attention_heads: 8,
  num_key_value_heads: 2,
});

const folder = await Deno.makeTempDir({ prefix: "parscale-ranks-" });
await Deno.writeTextFile(`${folder}/config.json`, CONFIG);
const row = (i: number) => ({
  tokens: Array.from({ length: 128 }, (_, t) => (i * 7919 + t * t * 31) % 8000),
});
const rows = Array.from({ length: 64 }, (_, i) => JSON.stringify(row(i)));
await Deno.writeTextFile(`${folder}/rows.jsonl`, rows.join("\n"));

/** Seconds of the later steps of a run. */
async function run(mpi: Mpi | undefined, threads: number): Promise<number[]> {
  const out = `${folder}/run`;
  const args = ["train", "--init", "scratch", "--config-from", `${folder}/config.json`];
  args.push("--streams", "2", "--data", `${folder}/rows.jsonl`, "--seq-len", "128", "-q", "-q");
  args.push("--batch", "8", "--micro-batch", "4", "--steps", `${steps}`, "--save-every", "100000");
  args.push("--threads", `${threads}`, "--out", out, "--overwrite");
  const [program, ...rest] = mpi ? mpiLine(mpi, 2, args) : programLine(args);
  const env = { ...AS_ROOT, PARSCALE_CACHE: `${folder}/cache` };
  const { code } = await new Deno.Command(program!, { args: rest, env, stdout: "null" }).output();
  if (code !== 0) throw new Error(`training ended with code ${code}`);
  const lines = (await Deno.readTextFile(`${out}/metrics.jsonl`)).trim().split("\n");
  return lines.slice(2).map((line) => JSON.parse(line).step_s as number);
}

const engines: { name: string; mpi: Mpi | undefined; times: number[] }[] = [
  { name: "1 rank x 2 threads", mpi: undefined, times: [] },
  ...MPIS.filter(({ launcher }) => launcher !== undefined).map((mpi) => ({
    name: `2 ranks x 1 thread, ${mpi.name}`,
    mpi,
    times: [],
  })),
];
try {
  for (let round = 0; round < rounds; round++) {
    for (const engine of engines) {
      const times = await run(engine.mpi, engine.mpi ? 1 : 2);
      console.error(`${engine.name}: ${times.map((time) => time.toFixed(2)).join(" ")}`);
      engine.times.push(...times);
    }
  }
} finally {
  await Deno.remove(folder, { recursive: true });
}
const alone = medianOf(engines[0]!.times);
for (const { name, times } of engines) {
  const time = medianOf(times);
  console.log(`${name}: ${time.toFixed(3)} s a step, ${(alone / time).toFixed(2)}x`);
}
