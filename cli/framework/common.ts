/**
 * Flags that many commands share: the common ones, which the frame adds to every command, and the
 * engine ones, which a command spreads into its own table. A command that redefines a common flag
 * (as `convert` does with `--out`) replaces it.
 */
import { flagGroup } from "./table.ts";

/** Result formats, in the order of `help formats`. */
export const FORMATS = ["table", "json", "jsonl", "csv", "md"] as const;

/** One of the result formats. */
export type Format = typeof FORMATS[number];

/** Understood by every command. */
export const commonFlags = flagGroup("Common", {
  help: {
    type: "switch",
    letter: "h",
    configurable: false,
    summary: "Show help; -h is short, --help is complete",
    details: "Help wins over every other flag on the line, so it may be added to any command.",
  },
  version: {
    type: "switch",
    letter: "V",
    configurable: false,
    summary: "Show the version",
    details: "Prints the name and the version on stdout.",
  },
  quiet: {
    type: "count",
    max: 2,
    letter: "q",
    summary: "Show only the result and errors; twice: only errors",
    details: "Once: no progress, notes or warnings. Twice: the result is not printed on stdout " +
      "either, only the exit code, files and errors remain.",
  },
  verbose: {
    type: "count",
    max: 2,
    letter: "v",
    summary: "Show details; twice: stack traces of errors",
    details: "PARSCALE_TRACE=1 also adds the trace to an error.",
  },
  format: {
    type: "choice",
    choices: FORMATS,
    default: "table",
    summary: "Format of the result",
    details: "See `parscale help formats`. Only json and jsonl are stable between releases.",
  },
  json: {
    type: "shorthand",
    sets: "format",
    value: "json",
    summary: "Same as --format json",
    details: "One document on stdout; an error is one object on stderr.",
  },
  jsonl: {
    type: "shorthand",
    sets: "format",
    value: "jsonl",
    summary: "Same as --format jsonl",
    details: "One object per line, each written as soon as it is known.",
  },
  out: {
    type: "output",
    letter: "o",
    placeholder: "PATH|-",
    summary: "Write the result to a file instead of stdout",
    defaultText: "stdout",
    details: "The file appears complete or not at all. An existing one is only replaced with " +
      "--overwrite. A path of - is stdout.",
  },
  overwrite: {
    type: "switch",
    configurable: false,
    summary: "Replace existing output",
    details: "Nothing is ever replaced without it.",
  },
  color: {
    type: "choice",
    choices: ["auto", "always", "never"],
    default: "auto",
    summary: "When to use colour",
    details: "auto: on a terminal, unless NO_COLOR is non-empty or TERM is dumb; FORCE_COLOR " +
      "turns it on elsewhere.",
  },
  progress: {
    type: "switch",
    default: true,
    summary: "Show a progress line on a terminal",
    details: "Without it, and whenever CI is set, progress comes as plain lines.",
  },
  config: {
    type: "path",
    configurable: false,
    placeholder: "FILE",
    summary: "Read flags from a JSON or YAML file",
    details: "Keys are the long flag names of the command. A document printed with --json is a " +
      "valid file too. Flags and environment win over it.",
  },
  preset: {
    type: "string",
    placeholder: "NAME",
    summary: "Start from a named set of flags",
    details: "See `parscale help presets`. Everything else wins over a preset except defaults.",
  },
  "dry-run": {
    type: "switch",
    configurable: false,
    summary: "Print the plan and write nothing",
    details: "With --json the output is a valid --config file that also tells where each value " +
      "comes from.",
  },
});

/** For commands that keep finished rows beside `--out`. */
export const rowFlags = flagGroup("Result", {
  resume: {
    type: "switch",
    configurable: false,
    summary: "Resume the interrupted run of --out, or start one",
    details:
      "While rows are computed, those that are finished are kept in FILE.partial. The same " +
      "command with --resume computes the others; the result is that of an unbroken run. What " +
      "made it is kept in .FILE.resume, by which the same command finds it complete, so that it " +
      "can be repeated until it exits with 0. Any other file of that name is refused.",
  },
  echo: {
    type: "switch",
    summary: "Repeat what each row was asked",
    details: "Results also have the fields of the input that were used: `prompt` and " +
      "`continuation`, or `text`.",
  },
  "on-error": {
    type: "choice",
    choices: ["row", "stop"],
    defaultText: "row, but stop at a line that is not a row",
    summary: "Record rows that fail, or stop at the first",
    details:
      "row writes a row with `error` in place of the result of each, and the exit code is 1. " +
      "Unless this is given, a row that the model cannot take is recorded, and one that cannot be " +
      "read ends the command.",
  },
});

/** For commands with independent rows. */
export const shardFlag = {
  type: "string",
  placeholder: "I/N",
  summary: "Only part I of N, counted from 1",
  details: "In a Slurm array of 8: --shard $SLURM_ARRAY_TASK_ID/8; under mpirun: " +
    "--shard $((OMPI_COMM_WORLD_RANK+1))/8; in a Kubernetes indexed job: " +
    "--shard $((JOB_COMPLETION_INDEX+1))/8. The rows of all parts are put together by `cat`.",
} as const;

/** A machine with more GPUs than this names them by CUDA_VISIBLE_DEVICES. */
export const OTHER_GPUS = [
  "cuda:1",
  "cuda:2",
  "cuda:3",
  "cuda:4",
  "cuda:5",
  "cuda:6",
  "cuda:7",
] as const;

/** Added by commands that run a model. */
export const engineFlags = flagGroup("Engine", {
  adapter: {
    type: "path",
    summary: "Adapter: ParScale parameters for a plain backbone",
    details: "A folder or safetensors file written by `convert --introduced-only` or by training " +
      "with --train-params introduced.",
  },
  device: {
    type: "choice",
    choices: ["auto", "cpu", "webgpu", "cuda", ...OTHER_GPUS, "tfjs", "reference"],
    default: "auto",
    summary: "Device to compute on",
    details: "auto is cpu. webgpu is any GPU with a Vulkan driver (Metal, Direct3D). " +
      "cuda needs an NVIDIA GPU of compute capability 8.0 or later that has passed " +
      "`parscale doctor --device cuda`; it has run on an H200. cuda:1 is the second GPU. tfjs is " +
      "TensorFlow, if you have installed its package for Node, one op at a time in f32. reference is plain TypeScript: slow, and the measure for all others.",
  },
  unverified: {
    type: "switch",
    summary: "Use a GPU that the doctor has not verified",
    details:
      "Without it --device cuda wants a GPU that has passed `parscale doctor --device cuda` " +
      "with this version and driver: a kernel that is wrong would give wrong numbers in silence.",
  },
  dtype: {
    type: "choice",
    choices: ["auto", "f32", "bf16", "f16"],
    default: "auto",
    summary: "Data type to compute in",
    details: "auto is bf16 on cuda and f32 elsewhere. bf16 needs cuda, and there softmax, norms, " +
      "losses and everything that is trained are f32 still. f16 needs webgpu and a GPU with 16-bit " +
      "arithmetic; matrices, their products, keys and values are f16 then, and nothing else. Stored " +
      "weights of another type are converted when they are read.",
  },
  threads: {
    type: "int",
    letter: "j",
    min: 1,
    max: 1024,
    summary: "Number of threads",
    defaultText: "all cores",
    details: "Applies to devices that compute on the processor.",
  },
  seed: {
    type: "int",
    min: 0,
    max: Number.MAX_SAFE_INTEGER,
    default: 0,
    summary: "Random seed",
    details: "The same seed, input and device give the same result. It is always reported.",
  },
  "memory-limit": {
    type: "size",
    min: 1,
    summary: "Fail if the planned memory exceeds this",
    defaultText: "no limit",
    details: "Checked against the exact plan of every step before it is computed.",
  },
});
