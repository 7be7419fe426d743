/**
 * One description per kernel: where it is, what it takes, how it is spread, which op it computes.
 *
 * Launch packing is made from these descriptions, and a test compares them with the C signatures, so
 * that an argument cannot be added on one side only. None of these kernels has run on a GPU yet.
 *
 * Arguments are written as in C, in order: `*x` is an address, `n` an i32, `n:i64` and `n:f32` what
 * they say. What surprises: sizes that follow from others are arguments too; a kernel computes no
 * strides from what it could be told.
 */
import type { KernelFile } from "./kernel_sources.ts";
import type { ArgumentType, Geometry } from "./launch.ts";

/** Sizes of one launch by argument name. */
export type Sizes = Readonly<Record<string, number>>;

/** One argument of a kernel. */
export interface KernelArgument {
  readonly name: string;
  readonly type: ArgumentType;
}

/** One kernel. */
export interface Kernel {
  readonly file: KernelFile;
  /** Its `extern "C"` name. */
  readonly entry: string;
  readonly arguments: readonly KernelArgument[];
  /** The op whose reference it follows; `gradient of` where it is one. */
  readonly op: string;
  geometry(sizes: Sizes): Geometry;
}

/** Macros of one compilation of a file. */
export type Specialisation = Readonly<Record<string, number>>;

/** Rows that one `linear` launch computes for each reading of the weights. */
export const LINEAR_ROWS = [1, 4, 8] as const;

/** Head sizes of the models in use. */
export const HEAD_DIMS = [64, 128] as const;

/** Rows of which one block makes a partial sum, in `rms_norm_weight` and `bias_partials`. */
export const PARTIAL_ROWS = 64;

const TYPES = [{ BF16: 0 }, { BF16: 1 }] as const;

const SPECIALISATIONS: Partial<Record<KernelFile, readonly Specialisation[]>> = {
  "forward/attention.cu": over("HEAD_DIM", HEAD_DIMS),
  "backward/attention.cu": over("HEAD_DIM", HEAD_DIMS),
  "forward/linear.cu": over("ROWS", LINEAR_ROWS).flatMap((each) =>
    // Wide results of float inputs are the same kernel.
    each.BF16 ? [{ ...each, WIDE: 0 }, { ...each, WIDE: 1 }] : [{ ...each, WIDE: 0 }]
  ),
};

/** Every set of macros with which a file is used. */
export function specialisations(file: KernelFile): readonly Specialisation[] {
  return SPECIALISATIONS[file] ?? TYPES;
}

function over(name: string, values: readonly number[]): Specialisation[] {
  return TYPES.flatMap((type) => values.map((value) => ({ ...type, [name]: value })));
}

/** Threads of the elementwise kernels. */
const THREADS = 256;

const ceil = (count: number, size: number) => Math.ceil(count / size);

/** A grid of blocks with one dimension of threads. */
function spread(threads: number, x: number, y = 1, z = 1): Geometry {
  return { grid: [x, y, z], block: [threads, 1, 1] };
}

/** Threads that take `per` elements each until `count` are taken. */
const each = (count: number, per = 1, threads = THREADS) =>
  spread(threads, ceil(count, threads * per));

/** Elements in 16 bytes; given with the sizes since it depends on BF16. */
const perPack = ({ BF16 }: Sizes) => BF16 ? 8 : 4;
/** What `packStep` of types.cuh gives. */
const packStep = (sizes: Sizes, row: number) => row % perPack(sizes) === 0 ? perPack(sizes) : 1;

function kernel(
  file: KernelFile,
  signature: string,
  op: string,
  geometry: (sizes: Record<string, number>) => Geometry,
): Kernel {
  const [entry, ...list] = signature.split(" ") as [string, ...string[]];
  return { file, entry, arguments: list.map(parseArgument), op, geometry };
}

function parseArgument(text: string): KernelArgument {
  if (text.startsWith("*")) return { name: text.slice(1), type: "pointer" };
  const [name, type = "i32"] = text.split(":") as [string, ArgumentType?];
  return { name, type };
}

/** All kernels. `sizes` holds the number arguments and the macros of the compilation. */
export const KERNELS: readonly Kernel[] = [
  kernel(
    "forward/embedding.cu",
    "embedding *y *table *ids tokens C V",
    "embedding",
    ({ tokens }) => spread(128, tokens!),
  ),
  kernel(
    "forward/repeat_streams.cu",
    "repeat_streams *y *x count:i64 P",
    "repeat_streams",
    (sizes) => each(sizes.count!, perPack(sizes)),
  ),
  kernel(
    "forward/rms_norm.cu",
    "rms_norm *y *inverse *x *weight rows C epsilon:f32",
    "rms_norm",
    ({ rows }) => spread(THREADS, ceil(rows!, 8)),
  ),
  kernel(
    "forward/rms_norm.cu",
    "add_rms_norm *y *sum *inverse *x *residual *weight rows C epsilon:f32",
    "rms_norm",
    ({ rows }) => spread(THREADS, ceil(rows!, 8)),
  ),
  kernel(
    "forward/rope.cu",
    "rope_tables *cosines *sines *positions *frequencies rows half",
    "rope",
    ({ rows, half }) => each(rows! * half!, 1, 128),
  ),
  kernel(
    "forward/rope.cu",
    "rope *y *x *cosines *sines rows heads half direction:f32",
    "rope",
    ({ rows, heads, half }) => each(rows! * heads! * half!),
  ),
  kernel(
    "forward/kv_cache.cu",
    "write_slots *cache *update *start R B T K S D",
    "write_slots",
    (sizes) => {
      const { R, T, K, D } = sizes;
      return each(R! * T! * K! * D!, packStep(sizes, D!));
    },
  ),
  kernel(
    "forward/attention.cu",
    "attention *out *normalizer *q *keys *values *first *last *prefixKeys *prefixValues " +
      "R B T S K G M scale:f32",
    "attention",
    // P·B attention rows, of which R have text of their own.
    ({ rows, G, T, K }) => spread(128, ceil(G! * T!, 16), K!, rows!),
  ),
  kernel(
    "forward/swiglu.cu",
    "silu *y *x count:i64",
    "silu",
    (sizes) => each(sizes.count!, perPack(sizes)),
  ),
  kernel(
    "forward/swiglu.cu",
    "swiglu *y *gate *up count:i64",
    "swiglu",
    (sizes) => each(sizes.count!, perPack(sizes)),
  ),
  kernel(
    "forward/aggregate.cu",
    "interleave_streams *columns *x P N C",
    "transpose",
    ({ N, C }) => each(N! * C!),
  ),
  kernel(
    "forward/aggregate.cu",
    "stream_weights *weights *scores N P smoothing:f32",
    "stream_weights",
    ({ N }) => each(N!, 1, 128),
  ),
  kernel(
    "forward/aggregate.cu",
    "mix_streams *y *x *weights P N C",
    "mix_streams",
    (sizes) => each(sizes.N! * sizes.C!, packStep(sizes, sizes.C!)),
  ),
  kernel(
    "forward/linear.cu",
    "linear *y *x *weight *bias M N K",
    "linear",
    ({ M, N, ROWS }) => spread(128, ceil(N!, 16), ceil(M!, ROWS!)),
  ),
  kernel(
    "forward/token_logprobs.cu",
    "token_logprobs *logprobs *normalizer *logits *targets N V",
    "token_logprobs",
    ({ N }) => spread(512, N!),
  ),
  kernel("forward/argmax.cu", "argmax *index *x N V", "argmax", ({ N }) => spread(512, N!)),
  kernel(
    "backward/embedding.cu",
    "embedding_backward *dtable *dy *ids *offsets *order unique C",
    "gradient of embedding",
    ({ unique }) => spread(128, unique!),
  ),
  kernel(
    "backward/repeat_streams.cu",
    "sum_streams *dx *dy count:i64 P",
    "gradient of repeat_streams",
    ({ count }) => each(count!),
  ),
  kernel(
    "backward/rms_norm.cu",
    "rms_norm_backward *dx *dy *residual *x *weight *inverse rows C",
    "gradient of rms_norm",
    ({ rows }) => spread(THREADS, ceil(rows!, 8)),
  ),
  kernel(
    "backward/rms_norm.cu",
    "rms_norm_weight *partial *dy *x *inverse rows C",
    "gradient of rms_norm",
    ({ rows, C }) => spread(128, ceil(C!, 128), ceil(rows!, PARTIAL_ROWS)),
  ),
  kernel(
    "backward/attention.cu",
    "attention_delta *delta *dout *out heads:i64",
    "gradient of attention",
    ({ heads }) => spread(128, ceil(heads!, 4)),
  ),
  kernel(
    "backward/attention.cu",
    "attention_queries *dq *dout *normalizer *delta *q *keys *values *first *last *prefixKeys " +
      "*prefixValues R rows B T S K G M scale:f32",
    "gradient of attention",
    ({ R, G, T, K }) => spread(128, ceil(G! * T!, 16), K!, R!),
  ),
  kernel(
    "backward/attention.cu",
    "attention_keys *dkeys *dvalues *dout *normalizer *delta *q *keys *values *first *last " +
      "R rows B T S K G scale:f32",
    "gradient of attention",
    ({ R, S, K }) => spread(128, ceil(S!, 16), K!, R!),
  ),
  kernel(
    "backward/attention.cu",
    "attention_prefix *dprefixKeys *dprefixValues *dout *normalizer *delta *q *prefixKeys " +
      "*prefixValues R B T K G M scale:f32",
    "gradient of attention",
    ({ P, M, K }) => spread(128, ceil(M!, 16), K!, P!),
  ),
  kernel(
    "backward/swiglu.cu",
    "silu_backward *dx *dy *x count:i64",
    "gradient of silu",
    (sizes) => each(sizes.count!, perPack(sizes)),
  ),
  kernel(
    "backward/swiglu.cu",
    "swiglu_backward *dgate *dup *dy *gate *up count:i64",
    "gradient of swiglu",
    (sizes) => each(sizes.count!, perPack(sizes)),
  ),
  kernel(
    "backward/aggregate.cu",
    "mix_streams_backward *dx *dweights *dy *x *weights P N C",
    "gradient of mix_streams",
    ({ N }) => spread(128, N!),
  ),
  kernel(
    "backward/aggregate.cu",
    "stream_weights_backward *dscores *dweights *weights N P smoothing:f32",
    "gradient of stream_weights",
    ({ N }) => each(N!, 1, 128),
  ),
  kernel(
    "backward/aggregate.cu",
    "separate_streams *dx *dcolumns P N C",
    "gradient of transpose",
    ({ N, C }) => each(N! * C!),
  ),
  kernel(
    "backward/linear.cu",
    "bias_partials *partial *dy rows N",
    "gradient of linear",
    ({ rows, N }) => spread(128, ceil(N!, 128), ceil(rows!, PARTIAL_ROWS)),
  ),
  kernel(
    "backward/linear.cu",
    "sum_partials *sum *partial chunks N accumulate",
    "sum",
    ({ N }) => each(N!, 1, 128),
  ),
  kernel(
    "backward/token_logprobs.cu",
    "token_logprobs_backward *dlogits *dy *logits *targets *normalizer N V",
    "gradient of token_logprobs",
    ({ N }) => spread(512, N!),
  ),
  kernel(
    "optimizer/adamw.cu",
    "adamw *chunks *step count beta1:f32 beta2:f32 epsilon:f32",
    "adamw",
    ({ count }) => spread(THREADS, count!),
  ),
  kernel(
    "optimizer/global_norm.cu",
    "square_sums *partial *gradients *sizes count",
    "sum",
    ({ count }) => spread(THREADS, count!),
  ),
  kernel(
    "optimizer/global_norm.cu",
    "global_norm *norm *partial count",
    "sqrt",
    () => spread(THREADS, 1),
  ),
];
