/**
 * `parscale convert` against a durable copy of the same file: `deno run -A tests/bench/convert.ts`.
 *
 * Makes a checkpoint of about 2 GB in the temporary folder, then alternates `cp` with `sync` of the
 * copy and a conversion, each as its own process, so that start-up counts and both meet the same
 * disk. Prints medians, their ratio and the conversion's peak memory; removes all it made. Linux only.
 */
import { ENTRY, environment } from "../cli/run.ts";
import { watchPeak } from "../resident.ts";
import { qwen05b, randomFolder } from "./random_model.ts";
import { medianOf } from "../../core/base/statistics.ts";

const ROUNDS = 5;
const STREAMS = "4";

/** Widths of Qwen2.5-1.5B with half its layers: 2 GB. */
const CONFIG = {
  ...qwen05b(1),
  hiddenSize: 1536,
  intermediateSize: 8960,
  numHiddenLayers: 16,
  numAttentionHeads: 12,
  headDim: 128,
};

interface Run {
  readonly seconds: number;
  /** Peak resident memory in bytes, as last seen before the end. */
  readonly memory: number;
}

/** Runs a program to its end, watching its memory. */
async function run(program: string, args: readonly string[]): Promise<Run> {
  const begin = performance.now();
  const child = new Deno.Command(program, {
    args: [...args],
    env: environment(),
    clearEnv: true,
    stdout: "null",
  }).spawn();
  const peak = watchPeak(child.pid);
  const { success } = await child.status;
  const memory = peak();
  if (!success) throw new Error(`${program} ${args.join(" ")} failed`);
  return { seconds: (performance.now() - begin) / 1000, memory };
}

async function compare(folder: string): Promise<void> {
  const source = `${folder}/model`, copy = `${folder}/copy`, out = `${folder}/out`;
  randomFolder(CONFIG, "convert", source);
  const weights = `${source}/model.safetensors`;
  const durableCopy = ["-c", 'cp "$0" "$1" && sync "$1"', weights, copy];
  const convert = ["run", "-A", ENTRY, "convert", "--model", source, "--out", out];
  const programs: Record<string, readonly [string, readonly string[]]> = {
    "cp": ["cp", [weights, copy]],
    "cp and sync": ["bash", durableCopy],
    "convert": [Deno.execPath(), [...convert, "--streams", STREAMS, "--no-progress"]],
  };
  const runs: Record<string, Run[]> = {};
  for (let round = 0; round < ROUNDS; round++) {
    for (const [name, [program, args]] of Object.entries(programs)) {
      await run("sync", ["-f", folder]); // so that no run pays for the writes of another
      // Not before: a virtual machine may return freed memory to its host, and get it back slowly.
      for (const path of [copy, out]) await Deno.remove(path, { recursive: true }).catch(() => {});
      (runs[name] ??= []).push(await run(program, args));
    }
  }
  const seconds = (name: string) => medianOf(runs[name]!.map((run) => run.seconds));
  console.log(`${(Deno.statSync(weights).size / 1e9).toFixed(2)} GB, ${ROUNDS} rounds, medians`);
  for (const [name, list] of Object.entries(runs)) {
    const all = list.map((run) => run.seconds.toFixed(2)).join(" ");
    console.log(`${name.padEnd(12)} ${seconds(name).toFixed(2)} s  (${all})`);
  }
  const ratio = (name: string) => (seconds(name) / seconds("convert")).toFixed(2);
  console.log(`speed of convert: ${ratio("cp and sync")} of cp and sync, ${ratio("cp")} of cp`);
  const peak = Math.max(...runs["convert"]!.map((run) => run.memory));
  console.log(`peak memory of convert: ${(peak / 1e6).toFixed(0)} MB`);
}

const folder = await Deno.makeTempDir({ prefix: "parscale-bench-" });
try {
  await compare(folder);
} finally {
  const weights = await Deno.realPath(`${folder}/model/model.safetensors`);
  await Promise.all([weights, folder].map((path) => Deno.remove(path, { recursive: true })));
}
