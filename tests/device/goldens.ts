/** The golden models: where they lie, what is expected of them, how closely. */
import { openCheckpoint } from "../../core/checkpoint/open.ts";
import { readHeader } from "../../core/checkpoint/safetensors.ts";
import { Engine } from "../../core/generate/engine.ts";
import type { ModelConfig } from "../../core/model/config.ts";
import type { Device, Weights } from "../../core/runtime/device.ts";
import { weightValues } from "../../core/runtime/weights.ts";
import { FIXTURES, readFixture } from "../fixtures.ts";

/** Folder names under `fixtures/models` and `fixtures/golden`. */
export const GOLDEN_NAMES = [
  "qwen2-p1-tied-f32",
  "qwen2-p1-untied-bf16",
  "qwen2-p2-tied-f32",
  "qwen2-p2-untied-bf16",
  "qwen2-p4-untied-f32",
  "qwen3-p1-tied-f32",
  "qwen3-p2-untied-f32",
  "qwen35-p1-tied-f32",
  "qwen35-p1-untied-bf16",
  "qwen35-p2-tied-f32",
  "qwen35-p4-untied-f32",
] as const;

/** Models that slow devices are tried on, all that is particular among them. */
const FEW: readonly string[] = [
  "qwen2-p1-tied-f32",
  "qwen2-p4-untied-f32",
  "qwen3-p2-untied-f32",
  "qwen35-p4-untied-f32",
];

/** Returns whether a device is tried on a golden model: `PARSCALE_LONG_TESTS=1` tries all devices on all. */
export function takesGolden(device: string, name: string): boolean {
  const slow = device.includes("emulated") || /^(tfjs|webgpu)/.test(device) ||
    device.startsWith("cpu, ") && name.startsWith("qwen35"); // on cpu all of them
  return !slow || FEW.includes(name) || Deno.env.get("PARSCALE_LONG_TESTS") === "1";
}

/** Largest allowed absolute differences in float32. */
export const TOLERANCE = {
  logits: 1e-4,
  trace: 1e-4,
  weights: 2e-5,
  loss: 1e-5,
  tokenLoss: 1e-4,
  beamScore: 1e-5,
} as const;

/** Folder of a golden checkpoint. */
export function modelFolder(name: string): string {
  return `${FIXTURES}models/${name}`;
}

/** A golden model on a device, with another configuration where some is given. */
export async function openGolden(
  name: string,
  device: Device,
  changes: Partial<ModelConfig> = {},
): Promise<Engine> {
  const { config, tensors } = await openCheckpoint(modelFolder(name));
  return new Engine(device, { ...config, ...changes }, tensors);
}

/** A model with a NaN as one element of a weight. */
export function withNaN(tensors: Weights, name: string, at: number): Weights {
  const weight = tensors.get(name)!;
  const data = Float32Array.from(weightValues(weight));
  data[at] = NaN;
  return new Map(tensors).set(name, { dtype: "f32", shape: weight.shape, data });
}

interface Search {
  readonly beams: number;
  readonly prompt: number[];
  readonly max_new_tokens: number;
  readonly length_penalty: number;
  readonly eos: number | null;
  readonly outputs: { ids: number[]; score: number }[];
}

/** One expected gradient: its loss, global norm and L2 norm of each tensor. */
export interface ExpectedGradients {
  readonly loss: number;
  readonly global_norm: number;
  readonly l2: Readonly<Record<string, number>>;
}

/** One expected training run. */
export interface ExpectedRun {
  readonly mode: "full" | "peft";
  readonly run: "paper" | "same_batch";
  readonly lr: number;
  readonly betas: readonly [number, number];
  readonly eps: number;
  readonly weight_decay: number;
  readonly clip: number;
  readonly batches: number[][][];
  readonly repeat: number;
  readonly steps: readonly { loss: number; grad_norm: number; clip_scale: number }[];
  readonly loss_after: number;
  readonly loss_noise: number;
  readonly final_param_noise: number;
  readonly final_l2: Readonly<Record<string, number>>;
  readonly decayed: readonly string[];
  readonly not_decayed: readonly string[];
  readonly final_file?: string;
}

/** The parts of `expected.json`. */
export interface Expected {
  readonly cases: Record<string, { ids: number[][]; loss?: number; left_padding?: number[] }>;
  readonly greedy: {
    readonly prompts: number[][];
    readonly outputs: number[][];
    readonly with_eos: { eos: number; prompt: number[]; output: number[] };
  };
  /** Absent for Qwen3.5. */
  readonly beam?: Search[];
  readonly gradients: {
    readonly ids: number[][];
    readonly labels: number[][];
    readonly full: ExpectedGradients;
    readonly peft?: ExpectedGradients;
  };
  readonly train: readonly ExpectedRun[];
}

/** Expected values of a golden model. */
export function readExpected(name: string): Expected {
  return readFixture(`golden/${name}/expected.json`);
}

/** Expected tensors of a golden model in f32. */
export function readExpectedTensors(name: string): Promise<Map<string, Float32Array>> {
  return readTensors(name, "expected");
}

/** All tensors of a file of a golden model in f32. */
export async function readTensors(name: string, file: string): Promise<Map<string, Float32Array>> {
  const path = `${FIXTURES}golden/${name}/${file}.safetensors`;
  const tensors = new Map<string, Float32Array>();
  for (const { name, dtype, shape, offset } of await readHeader(path)) {
    const type = dtype === "F32" ? "f32" : "bf16";
    tensors.set(name, weightValues({ dtype: type, shape, path, offset }));
  }
  return tensors;
}

/** Largest absolute difference; NaN counts as infinite. */
export function maxDifference(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  if (actual.length !== expected.length) return Infinity;
  let worst = 0;
  for (let i = 0; i < expected.length; i++) {
    const difference = Math.abs(actual[i]! - expected[i]!);
    worst = difference <= worst ? worst : Number.isNaN(difference) ? Infinity : difference;
  }
  return worst;
}

/** Largest difference relative to the largest number expected, if that is above 1. */
export function relativeDifference(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  return maxDifference(actual, expected) / Math.max(1, ...Array.from(expected, Math.abs));
}

/** Length of the difference of two vectors, relative to the expected one. */
export function distance(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  let [difference, size] = [0, 0];
  for (let i = 0; i < expected.length; i++) {
    difference += (actual[i]! - expected[i]!) ** 2;
    size += expected[i]! ** 2;
  }
  return Math.sqrt(difference / size);
}
