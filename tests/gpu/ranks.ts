/**
 * Data-parallel training over all GPUs of a machine beside one of them: equal losses, and how much faster.
 *
 * Ranks are started with the variables that torchrun sets. Without a GPU one rank on the cpu device shows
 * that the command lines work; what several ranks do there is tested with mpirun.
 */
import { scratchConfig } from "../bench/random_model.ts";
import { programLine } from "../cli/run.ts";
import { medianOf } from "../../core/base/statistics.ts";

/** A figure of a machine. */
export interface Finding {
  readonly name: string;
  readonly figure: number;
  readonly unit: string;
}

const STEPS = 12;

/** First steps, which are not timed. */
const WARM = 2;

/** Losses of a run may differ by what sums in another order round. */
const TOLERANCE = 1e-3;

/** 68 million parameters. */
const LARGE = {
  vocab_size: 32768,
  hidden_size: 1024,
  intermediate_size: 2816,
  num_hidden_layers: 4,
};
const SMALL = { vocab_size: 512, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2 };

/** Record of a step in a run. */
interface Step {
  readonly loss: number;
  readonly step_s: number;
}

/** Trains over `world` ranks and returns what rank 0 recorded. */
async function train(folder: string, world: number, device: string): Promise<Step[]> {
  const out = `${folder}/run-${world}`;
  const args = ["train", "--init", "scratch", "--config-from", `${folder}/config.json`];
  args.push("--streams", "2", "--data", `${folder}/rows.jsonl`, "--seq-len", "128", "-q", "-q");
  args.push("--batch", "32", "--micro-batch", "4", "--steps", `${STEPS}`, "--save-every", "100000");
  args.push("--device", device, "--out", out);
  if (device === "cuda") args.push("--unverified"); // their cache has no record of the bring-up
  const [program, ...rest] = programLine(args);
  const ranks = Array.from({ length: world }, (_, rank) => {
    const env: Record<string, string> = { PARSCALE_CACHE: `${folder}/cache` };
    if (world > 1) {
      Object.assign(env, {
        ...{ RANK: `${rank}`, LOCAL_RANK: `${rank}`, WORLD_SIZE: `${world}` },
        ...{ LOCAL_WORLD_SIZE: `${world}`, MASTER_ADDR: "127.0.0.1", MASTER_PORT: "29517" },
      });
    }
    return new Deno.Command(program!, { args: rest, env, stdout: "null" }).output();
  });
  const ended = await Promise.all(ranks);
  if (ended.some(({ code }) => code !== 0)) {
    const each = ended.map(({ code, stderr }) => `${code}: ${new TextDecoder().decode(stderr)}`);
    throw new Error(`training over ${world} ranks ended with the codes\n${each.join("\n")}`);
  }
  const lines = (await Deno.readTextFile(`${out}/metrics.jsonl`)).trim().split("\n");
  return lines.map((line) => JSON.parse(line)).filter(({ loss }) => typeof loss === "number");
}

/**
 * Trains over one rank and, where there are several GPUs, over all of them.
 * @throws {Error} when a run fails or the losses differ
 */
export async function trainOverAll(gpus: number, device: "cuda" | "cpu"): Promise<Finding[]> {
  const folder = await Deno.makeTempDir({ prefix: "parscale-ranks-" });
  try {
    const config = scratchConfig({
      ...(device === "cuda" ? LARGE : SMALL),
      ...{ num_attention_heads: 8, num_key_value_heads: 2 },
    });
    await Deno.writeTextFile(`${folder}/config.json`, config);
    const row = (i: number) => ({
      tokens: Array.from({ length: 128 }, (_, t) => (i * 7919 + t * t * 31) % 500),
    });
    const rows = Array.from({ length: 128 }, (_, i) => JSON.stringify(row(i)));
    await Deno.writeTextFile(`${folder}/rows.jsonl`, rows.join("\n"));
    const secondsOf = (steps: readonly Step[]) => medianOf(steps.slice(WARM).map((s) => s.step_s));
    const one = await train(folder, 1, device);
    const findings = [{ name: "step on one rank", figure: secondsOf(one), unit: "s" }];
    if (gpus < 2) return findings;
    const all = await train(folder, gpus, device);
    all.forEach(({ loss }, i) => {
      const expected = one[i]!.loss;
      if (Math.abs(loss / expected - 1) <= TOLERANCE) return;
      throw new Error(`step ${i + 1} over ${gpus} GPUs: loss ${loss}, expected ${expected}`);
    });
    const speedup = secondsOf(one) / secondsOf(all);
    return [...findings, { name: `training over ${gpus} GPUs`, figure: speedup, unit: "x of one" }];
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
