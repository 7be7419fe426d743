/** All kernels, file by file, and all rules. */
import type { PrimitiveName } from "../../../graph/primitives.ts";
import type { Op } from "../../../graph/program.ts";
import { ADAMW, ADAMW_RULES } from "./adamw.ts";
import { AGGREGATE, AGGREGATE_BACKWARD, AGGREGATE_RULES } from "./aggregate.ts";
import * as attention from "./attention.ts";
import type { Kernel, KernelFile } from "./define.ts";
import * as elementwise from "./elementwise.ts";
import { EMBEDDING, EMBEDDING_RULES } from "./embedding.ts";
import { ADD_LAST, INDEXING, SCATTER_ADD, TAKE_LAST } from "./indexing.ts";
import { LINEAR, LINEAR_RULES } from "./linear.ts";
import { MATMUL, MATMUL_FILE } from "./matmul.ts";
import * as movement from "./movement.ts";
import { CAST, MOVEMENT } from "./copies.ts";
import { ARGMAX, argmax, SAMPLE, SAMPLE_RULES } from "./next_token.ts";
import { MAX, REDUCE, SUM } from "./reduce.ts";
import { RMS_NORM, RMS_NORM_BACKWARD, RMS_NORM_RULES } from "./rms_norm.ts";
import { KV_CACHE, ROPE, ROPE_RULES, WRITE_SLOTS } from "./rope.ts";
import type { Rule } from "./rule.ts";
import { SUMS } from "./sums.ts";
import { SWIGLU, SWIGLU_BACKWARD, SWIGLU_RULES } from "./swiglu.ts";
import { LOGPROBS, LOGPROBS_BACKWARD, LOGPROBS_RULES } from "./token_logprobs.ts";

/** All files, in the order in which a training step meets them. */
export const KERNEL_FILES: readonly KernelFile[] = [
  ...[EMBEDDING, RMS_NORM, ROPE, KV_CACHE, attention.ATTENTION, attention.ATTENTION_MMA],
  ...[attention.ATTENTION_SPLIT, elementwise.ADD, SWIGLU, AGGREGATE, LINEAR, LOGPROBS, ARGMAX],
  ...[SAMPLE, RMS_NORM_BACKWARD, attention.ATTENTION_BACKWARD, attention.ATTENTION_BACKWARD_MMA],
  ...[SWIGLU_BACKWARD, AGGREGATE_BACKWARD, SUMS, LOGPROBS_BACKWARD, ADAMW],
  ...[elementwise.ELEMENTWISE, CAST, MOVEMENT, REDUCE, INDEXING, MATMUL_FILE],
];

/** All kernels, file by file. */
export const KERNELS: readonly Kernel[] = KERNEL_FILES.flatMap(({ kernels }) => kernels);

/** The compiler checks that no primitive is missing. */
const PRIMITIVE_RULES: Readonly<Record<PrimitiveName, Rule>> = {
  add: elementwise.ADD_RULE,
  sub: elementwise.SUB,
  mul: elementwise.MUL,
  div: elementwise.DIV,
  less_equal: elementwise.LESS_EQUAL,
  exp: elementwise.EXP,
  log: elementwise.LOG,
  sqrt: elementwise.SQRT,
  sin: elementwise.SIN,
  cos: elementwise.COS,
  sigmoid: elementwise.SIGMOID,
  select: elementwise.SELECT,
  cast: elementwise.CAST_RULE,
  constant: elementwise.CONSTANT,
  iota: elementwise.IOTA,
  sum: SUM,
  max: MAX,
  argmax,
  matmul: MATMUL,
  reshape: movement.RESHAPE,
  recompute: movement.RECOMPUTE,
  transpose: movement.TRANSPOSE,
  broadcast: movement.BROADCAST,
  slice: movement.SLICE,
  concat: movement.CONCAT,
  gather: movement.GATHER,
  assign: movement.ASSIGN,
  write_slots: WRITE_SLOTS,
  take_last: TAKE_LAST,
  scatter_add: SCATTER_ADD,
  add_last: ADD_LAST,
};

/** The rule of every op that this device runs whole. */
export const RULES: ReadonlyMap<Op, Rule> = new Map(
  [
    ...Object.values(PRIMITIVE_RULES),
    ...[...EMBEDDING_RULES, ...RMS_NORM_RULES, ...LINEAR_RULES, ...ROPE_RULES],
    ...[...attention.ATTENTION_RULES, ...SWIGLU_RULES, ...AGGREGATE_RULES, ...LOGPROBS_RULES],
    ...[...SAMPLE_RULES, ...ADAMW_RULES, elementwise.COMPUTE_INTO],
  ].map((rule) => [rule.op, rule]),
);
