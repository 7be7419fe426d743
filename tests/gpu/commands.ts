/**
 * Every command that computes, on one device beside `cpu`: the same small models, the same flags, and of
 * each document the numbers that must agree.
 */
import { programLine, runCommand } from "../cli/run.ts";
import { FIXTURES } from "../fixtures.ts";

const pathTo = (path: string) => FIXTURES + path;
const [ONE, FOUR] = [pathTo("models/python-p1"), pathTo("models/python-p4")];
const HYBRID = pathTo("models/qwen35-p4-untied-f32");
const HELD_OUT = pathTo("demo/held_out.jsonl");

/** A command line and what of its document is compared; where nothing is, it has to succeed alone. */
interface Case {
  readonly name: string;
  readonly args: readonly string[];
  readonly stdin?: string;
  // deno-lint-ignore no-explicit-any -- documents of many commands
  readonly read?: (results: any) => readonly (number | string)[];
}

const prompt = ["--prompt", "def test_repr(self):\n    ", "--max-tokens", "24"];
const TEXT = "def f(x):\n    return self.x\n";

const CASES: readonly Case[] = [
  { name: "generate", args: ["generate", "-m", FOUR, ...prompt], read: ([row]) => row.tokens },
  {
    name: "generate, sampled",
    args: ["generate", "-m", FOUR, ...prompt, "--temperature", "1", "--seed", "3"],
    read: ([row]) => row.tokens,
  },
  {
    name: "generate, beams",
    args: ["generate", "-m", ONE, ...prompt, "--num-beams", "4"],
    read: ([row]) => row.tokens,
  },
  {
    name: "score",
    args: ["score", "-m", FOUR, "--stream-weights"],
    stdin: JSON.stringify({ text: TEXT }),
    read: ([row]) => [...row.token_logprobs, ...row.weights.flat()],
  },
  {
    name: "eval",
    args: ["eval", "-m", FOUR, "--tasks", "perplexity", "--data", HELD_OUT],
    read: ({ tasks }) => tasks[0].metrics.map(({ value }: { value: number }) => value),
  },
  {
    name: "compare",
    args: ["compare", "-m", ONE, "--parscale", FOUR, "--beams", "2", "--tasks", "gsm8k"]
      .concat("--shots", "0", "--limit", "2", "--data", pathTo("eval/data")),
  },
  {
    name: "visualize",
    args: ["visualize", "-m", FOUR, "--text", TEXT],
    read: ({ rows }) => rows.flatMap(({ weights }: { weights: number[] }) => weights),
  },
  { name: "bench", args: ["bench", "-m", FOUR, "--rounds", "1"] },
  {
    name: "bench train",
    args: ["bench", "-m", FOUR, "--rounds", "1", "--what", "train", "--prompt", "64"]
      .concat("--train-params", "all,introduced"),
  },
  {
    name: "generate Qwen3.5",
    args: ["generate", "-m", HYBRID, ...prompt],
    read: ([row]) => row.tokens,
  },
  ...[
    ["all", FOUR, "--train-params", "all"],
    ["introduced", FOUR, "--train-params", "introduced"],
    ["LoRA", ONE, "--streams", "2", "--transform", "lora", "--train-params", "introduced"],
    ["Qwen3.5", HYBRID, "--train-params", "introduced"],
  ].map(([name, model, ...params]): Case => ({
    name: `train ${name}`,
    args: ["train", "-m", model!, ...params, "--data", HELD_OUT, "--steps", "4", "--seq-len", "64"]
      .concat("--batch", "4", "--lr", "1e-3", "--overwrite", "-q"),
    read: (steps) => steps.map(({ loss }: { loss: number }) => loss),
  })),
];

/** One command on one device. */
export interface CommandResult {
  readonly device: string;
  readonly command: string;
  /** Largest difference from `cpu`, relative to 1 or the value; 0 where nothing is compared. */
  readonly difference?: number;
  /** Failure: the last line of stderr, or the difference. */
  readonly error?: string;
}

/** Relative difference that rounding of f32 may make after several layers. */
const TOLERANCE = 1e-3;

/** Runs a line and returns the values of its document. @throws {Error} with its last words */
async function valuesOf(given: Case, device: string, folder: string) {
  const trains = given.args[0] === "train";
  const args = [...given.args, "--device", device];
  args.push(...(trains ? ["--out", `${folder}/run`] : ["--json"]));
  if (device === "cuda") args.push("--unverified");
  if (device === "cuda") args.push("--dtype", "f32");
  const { code, stdout, stderr } = await runCommand(programLine(args), {
    stdin: given.stdin ?? "",
    env: { ...Deno.env.toObject(), PARSCALE_CACHE: `${folder}/cache` },
  });
  // compare ends with 1 where streams answer worse
  if (code !== 0 && !(given.name === "compare" && code === 1)) {
    throw new Error(`${code}: ${(stderr.trim() || stdout.trim()).split("\n").at(-1)}`);
  }
  if (!trains) return given.read?.(JSON.parse(stdout).results) ?? [];
  const lines = (await Deno.readTextFile(`${folder}/run/metrics.jsonl`)).trim().split("\n");
  const steps = lines.map((line) => JSON.parse(line)).filter(({ loss }) =>
    typeof loss === "number"
  );
  return given.read!(steps);
}

/**
 * Rows of the table in docs/devices.md, by command and device: `equal`, `runs` where nothing is compared,
 * or the power of ten that bounds the difference.
 */
export function cellOf({ command, difference, error }: CommandResult): string {
  if (error !== undefined || difference === undefined) return "fails";
  if (CASES.find(({ name }) => name === command)?.read === undefined) return "runs";
  return difference === 0 ? "equal" : `within 1e${Math.ceil(Math.log10(difference))}`;
}

/** Commands of the table, in its order. */
export const COMMANDS: readonly string[] = CASES.map(({ name }) => name);

function differenceOf(found: readonly (number | string)[], expected: readonly (number | string)[]) {
  if (found.length !== expected.length) return Infinity;
  const differences = found.map((value, i) => {
    const other = expected[i]!;
    if (typeof value === "string" || typeof other === "string") {
      return value === other ? 0 : Infinity;
    }
    const difference = Math.abs(value - other) / Math.max(1, Math.abs(other));
    return difference >= 0 ? difference : Infinity; // NaN
  });
  return Math.max(0, ...differences);
}

/** Runs all commands on `devices` beside `cpu`, one after the other. */
export async function runCommands(devices: readonly string[]): Promise<CommandResult[]> {
  const folder = await Deno.makeTempDir({ prefix: "parscale-commands-" });
  const results: CommandResult[] = [];
  try {
    for (const given of CASES) {
      const expected = await valuesOf(given, "cpu", folder);
      for (const device of devices) {
        const row = { device, command: given.name };
        try {
          const difference = differenceOf(await valuesOf(given, device, folder), expected);
          const error = difference <= TOLERANCE ? {} : { error: `differs by ${difference}` };
          results.push({ ...row, difference, ...error });
        } catch (error) {
          results.push({ ...row, error: (error as Error).message });
        }
      }
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  return results;
}
