/** All kernels, file by file, and all rules. */
import type { Op } from "../../../graph/program.ts";
import { ADAMW, ADAMW_RULES } from "./adamw.ts";
import { AGGREGATE, AGGREGATE_BACKWARD, AGGREGATE_RULES } from "./aggregate.ts";
import * as attention from "./attention.ts";
import type { Kernel, KernelFile } from "./define.ts";
import { ELEMENTWISE_RULES } from "./elementwise.ts";
import { INDEXING, INDEXING_RULES } from "./indexing.ts";
import { LINEAR, LINEAR_MMA, LINEAR_RULES } from "./linear.ts";
import { MATMUL, MATMUL_RULES } from "./matmul.ts";
import { MOVEMENT_RULES } from "./movement.ts";
import { REDUCE, REDUCE_RULES } from "./reduce.ts";
import { RMS_NORM, RMS_NORM_BACKWARD, RMS_NORM_RULES } from "./rms_norm.ts";
import { ROPE, ROPE_RULES } from "./rope.ts";
import type { Rule } from "./rule.ts";
import { SAMPLE, SAMPLE_RULES } from "./sample.ts";
import { ELEMENTWISE, MOVEMENT } from "./strided.ts";
import { SWIGLU, SWIGLU_BACKWARD, SWIGLU_RULES } from "./swiglu.ts";
import { LOGPROBS, LOGPROBS_BACKWARD, LOGPROBS_RULES } from "./token_logprobs.ts";

/** All files. The bring-up compiles the first one by itself: it is small. */
export const KERNEL_FILES: readonly KernelFile[] = [
  ...[MOVEMENT, ELEMENTWISE, REDUCE, INDEXING, MATMUL, RMS_NORM, ROPE, attention.ATTENTION_MMA],
  ...[attention.ATTENTION_SPLIT, SWIGLU, AGGREGATE, LINEAR, LINEAR_MMA, LOGPROBS, SAMPLE],
  ...[RMS_NORM_BACKWARD, attention.ATTENTION_BACKWARD, attention.ATTENTION_BACKWARD_MMA],
  ...[SWIGLU_BACKWARD, AGGREGATE_BACKWARD, LOGPROBS_BACKWARD, ADAMW],
];

/** All kernels, file by file. */
export const KERNELS: readonly Kernel[] = KERNEL_FILES.flatMap(({ kernels }) => kernels);

/** The rule of every op that this device runs whole: all primitives, and model ops with gradients. */
export const RULES: ReadonlyMap<Op, Rule> = new Map(
  [
    ...[...ELEMENTWISE_RULES, ...MOVEMENT_RULES, ...REDUCE_RULES, ...INDEXING_RULES],
    ...[...MATMUL_RULES, ...RMS_NORM_RULES, ...LINEAR_RULES, ...ROPE_RULES, ...SWIGLU_RULES],
    ...[...attention.ATTENTION_RULES, ...AGGREGATE_RULES, ...LOGPROBS_RULES, ...SAMPLE_RULES],
    ...ADAMW_RULES,
  ].map((rule) => [rule.op, rule]),
);
