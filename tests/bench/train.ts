/**
 * One training step (forward, backward, clipping, AdamW) on a device, beside PyTorch on the processor
 * where it is given, and its memory beside the plan.
 *
 *   deno run -A tests/bench/train.ts [--device cpu] [--rounds 9] [--threads 2] [--batch 4] [--tokens 256]
 *       [--shape qwen2.5-0.5b] [--streams 2] [--modes full,peft] [--counted 512]
 *       [--torch PYTHON --peer FOLDER_WITH_torch_parscale.py [--attention sdpa,eager]]
 *   deno run -A tests/bench/train.ts --memory [--batch 2] [--tokens 128]
 *
 * Without `--shape` the model has 4 layers and 20 million parameters; P = 2 and 48 prefix tokens unless told
 * otherwise; f32 on both sides. All engines are in memory at once: Qwen's shape in full takes 20 GB.
 * Only the first `--counted` tokens of a batch count; PyTorch computes the loss of all. Engines take turns, round by round, so that a busy machine slows them alike; the table holds medians
 * and ratios of medians. `--memory` trains a larger model in a fresh process for each line and prints
 * its peak memory, less the values that it begins with, beside what `planTraining` had said (Linux only).
 */
import { parseArgs } from "@std/cli/parse-args";
import { type DeviceName, openDevice } from "../../core/runtime/mod.ts";
import { CpuDevice } from "../../core/runtime/onnxruntime/cpu.ts";
import { trainableSpecs } from "../../core/train/trainable.ts";
import { Trainer, type TrainerOptions } from "../../core/train/trainer.ts";
import { planTraining } from "../../core/train/training_memory.ts";
import type { TrainingBatch } from "../../core/train/trainer.ts";
import type { ModelConfig } from "../../core/model/config.ts";
import { countParameters, parameterSpecs } from "../../core/model/parameters.ts";
import { elementCount } from "../../core/graph/types.ts";
import { lines } from "../../core/eval/sandbox/protocol.ts";
import { medianOf } from "../../core/base/statistics.ts";
import { residentOf } from "../resident.ts";
import { SHAPES, trainingModel } from "./random_model.ts";

const flags = parseArgs(Deno.args, {
  string: [
    ...["device", "rounds", "threads", "batch", "tokens", "torch", "peer", "measure"],
    ...["shape", "streams", "modes", "attention", "counted"],
  ],
  boolean: ["memory"],
  default: {
    device: "cpu",
    rounds: "9",
    threads: "2",
    streams: "2",
    modes: "full,peft",
    attention: "sdpa,eager",
  },
});
const inMemoryMode = flags.memory || flags.measure !== undefined;
const B = Number(flags.batch ?? (inMemoryMode ? 2 : 4));
const T = Number(flags.tokens ?? (inMemoryMode ? 128 : 256));

const streams = Number(flags.streams), counted = Number(flags.counted ?? B * T);
const MODEL: ModelConfig = flags.shape
  ? SHAPES[flags.shape as keyof typeof SHAPES](streams)
  : trainingModel(4, streams);

/** Model of `--memory`; without a shape 130 million parameters, beside which the runtime hardly counts. */
const LARGE: ModelConfig = flags.shape ? MODEL : {
  ...trainingModel(8, streams),
  vocabSize: 32768,
  hiddenSize: 1024,
  intermediateSize: 2816,
  numAttentionHeads: 16,
};

type Mode = "full" | "peft";

/** Small values that differ; one array for all tensors, so that measuring takes little memory. */
function valueSource(config: ModelConfig): (name: string) => Float32Array {
  const specs = new Map(parameterSpecs(config).map(({ name, shape }) => [name, shape]));
  const values = new Float32Array(largestBytes(config) / 4);
  values.forEach((_, i) => values[i] = ((i * 7919) % 2003 - 1001) / 30000);
  const ones = new Float32Array(config.intermediateSize).fill(1);
  return (name) =>
    (name.includes("norm") ? ones : values).subarray(0, elementCount(specs.get(name)!));
}

const largestBytes = (config: ModelConfig) =>
  4 * Math.max(...parameterSpecs(config).map(({ shape }) => elementCount(shape)));

function batchOf(config: ModelConfig): TrainingBatch {
  const count = B * T;
  const ids = Array.from({ length: count }, (_, i) => (i * 7919 + 13) % config.vocabSize);
  const weights = ids.map((_, i) => i % T === T - 1 || i >= counted ? 0 : 1);
  return {
    ids,
    positions: ids.map((_, i) => i % T),
    targets: ids.map((_, i) => ids[i + 1] ?? 0),
    weights,
    predicted: weights.filter((weight) => weight > 0).length,
  };
}

function optionsOf(
  config: ModelConfig,
  mode: Mode,
  { recompute = false, accumulates = false } = {},
): TrainerOptions {
  const params = mode === "full" ? "all" : "introduced";
  return {
    config,
    trained: trainableSpecs(config, { params, aggregation: "dynamic" }),
    initial: valueSource(config),
    sizes: { batch: B, tokens: T, counted },
    optimizer: { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, clip: 1 },
    accumulates,
    recompute,
  };
}

/** Milliseconds of one step, and of the optimiser in it. */
interface StepTime {
  readonly step: number;
  readonly optimizer: number;
}

interface Engine {
  readonly name: string;
  readonly mode: Mode;
  step(): Promise<StepTime>;
}

const RATES = { backbone: 1e-4, prefix: 1e-4, aggregator: 1e-4 };

async function ours(mode: Mode): Promise<Engine> {
  const device = await openDevice(flags.device as DeviceName, { threads: Number(flags.threads) });
  const trainer = await Trainer.create(device, optionsOf(MODEL, mode));
  const batch = batchOf(MODEL);
  let count = 0;
  return {
    name: "parscale",
    mode,
    async step() {
      const started = performance.now();
      await trainer.accumulate(batch);
      const middle = performance.now();
      await trainer.update(++count, RATES);
      const ended = performance.now();
      return { step: ended - started, optimizer: ended - middle };
    },
  };
}

/** Trains with the model of `torch_parscale.py`; one step for each line of standard input. */
const TORCH_STEPS = `
import json, sys, time
import torch
from torch_parscale import Config, ParScale, adamw, init_random, token_loss
sizes, mode, impl, threads, batch, tokens = json.loads(sys.argv[1])
torch.set_num_threads(threads)
model = init_random(ParScale(Config(**sizes), impl=impl), 1).train()
params = model.select_trainable(mode)
optimizer = adamw(params, fused=True)
ids = torch.randint(0, sizes["vocab"], (batch, tokens), generator=torch.Generator().manual_seed(0))
for _ in sys.stdin:
    started = time.perf_counter()
    token_loss(model(ids).logits, ids)[0].backward()
    middle = time.perf_counter()
    torch.nn.utils.clip_grad_norm_([p for _, p in params], 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    ended = time.perf_counter()
    print(json.dumps({"step": 1e3 * (ended - started), "optimizer": 1e3 * (ended - middle)}), flush=True)
`;

/** PyTorch in a process of its own; `impl` is how it computes attention. */
function torch(mode: Mode, impl: "sdpa" | "eager"): Engine & { close(): void } {
  const c = MODEL;
  const sizes = {
    vocab: c.vocabSize,
    hidden: c.hiddenSize,
    inter: c.intermediateSize,
    layers: c.numHiddenLayers,
    heads: c.numAttentionHeads,
    kv_heads: c.numKeyValueHeads,
    head_dim: c.headDim,
    theta: c.ropeTheta,
    tie: true,
    streams: c.streams,
    prefix_len: c.prefixTokens,
    smooth: c.smoothing,
  };
  const process = new Deno.Command(flags.torch!, {
    args: ["-c", TORCH_STEPS, JSON.stringify([sizes, mode, impl, Number(flags.threads), B, T])],
    env: { PYTHONPATH: flags.peer ?? "", OMP_NUM_THREADS: flags.threads },
    stdin: "piped",
    stdout: "piped",
  }).spawn();
  const input = process.stdin.getWriter();
  const answers = lines(process.stdout);
  return {
    name: `torch ${impl}`,
    mode,
    async step() {
      await input.write(new TextEncoder().encode("go\n"));
      return JSON.parse((await answers.next()).value!);
    },
    close: () => process.kill(),
  };
}

async function compareSpeed(): Promise<void> {
  const modes = flags.modes.split(",") as Mode[];
  const kinds = flags.attention.split(",") as ("sdpa" | "eager")[];
  const peers = flags.torch ? modes.flatMap((mode) => kinds.map((kind) => torch(mode, kind))) : [];
  const engines: Engine[] = [];
  for (const mode of modes) engines.push(await ours(mode));
  engines.push(...peers);
  for (const engine of engines) for (let i = 0; i < 2; i++) await engine.step();
  const times = engines.map((): StepTime[] => []);
  for (let round = 0; round < Number(flags.rounds); round++) {
    for (const [i, engine] of engines.entries()) times[i]!.push(await engine.step());
  }
  for (const peer of peers) peer.close();
  const { total, introduced } = countParameters(MODEL);
  console.log(
    `${(total / 1e6).toFixed(1)} M parameters (${(introduced / 1e6).toFixed(2)} M introduced), ` +
      `${B} x ${T} tokens, ${flags.device}, ${flags.threads} threads, medians of ${flags.rounds} rounds`,
  );
  const first = medianOf(times[0]!.map(({ step }) => step));
  engines.forEach((engine, i) => {
    const step = medianOf(times[i]!.map(({ step }) => step));
    const share = medianOf(times[i]!.map(({ step, optimizer }) => optimizer / step));
    const least = Math.min(...times[i]!.map(({ step }) => step));
    console.log(
      `${engine.name.padEnd(12)} ${engine.mode.padEnd(5)} ${step.toFixed(0).padStart(6)} ms/step ` +
        `(least ${least.toFixed(0)})  ${(B * T / step * 1000).toFixed(0).padStart(5)} tokens/s  ` +
        `optimiser ${(100 * share).toFixed(1)} %  ${(step / first).toFixed(2)}x of the first`,
    );
  });
}

/** Plans and trains two steps; prints both figures as JSON. */
async function measureMemory(kind: string): Promise<void> {
  const [mode, ...more] = kind.split("+") as [Mode, ...string[]];
  const accumulates = more.includes("accumulate");
  const device = new CpuDevice({ threads: Number(flags.threads) });
  const options = optionsOf(LARGE, mode, { recompute: more.includes("recompute"), accumulates });
  const batch = batchOf(LARGE);
  const plan = planTraining(device, options);
  const trainer = await Trainer.create(device, options);
  const created = residentOf("self").now;
  for (let step = 1; step <= 2; step++) {
    for (let i = 0; i < (accumulates ? 3 : 1); i++) await trainer.accumulate(batch);
    await trainer.update(step, RATES);
  }
  const peak = residentOf("self").peak - largestBytes(LARGE);
  console.log(JSON.stringify({ plan, created, peak }));
}

async function compareMemory(): Promise<void> {
  const { total } = countParameters(LARGE);
  console.log(`${(total / 1e6).toFixed(0)} M parameters, ${B} x ${T} tokens, bytes in MiB`);
  const kinds = ["full", "full+accumulate", "full+recompute", "full+recompute+accumulate", "peft"];
  for (const kind of [...kinds, "peft+accumulate", "peft+recompute"]) {
    const { stdout, success } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", import.meta.filename!, ...Deno.args, "--measure", kind],
      stderr: "inherit",
    }).output();
    if (!success) Deno.exit(1);
    const { plan, created, peak } = JSON.parse(new TextDecoder().decode(stdout));
    const mib = (bytes: number) => (bytes / 2 ** 20).toFixed(0).padStart(5);
    console.log(
      `${kind.padEnd(25)} planned ${mib(plan.total)} (activations ${mib(plan.activations)})  ` +
        `measured ${mib(peak)} (after creation ${mib(created)})  ` +
        `measured / planned ${(peak / plan.total).toFixed(3)}`,
    );
  }
}

if (flags.measure) await measureMemory(flags.measure);
else if (flags.memory) await compareMemory();
else await compareSpeed();
Deno.exit(0);
