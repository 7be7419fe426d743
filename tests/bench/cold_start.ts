/**
 * From the start of the command to its first token, and the peak memory on the way, for the Qwen2.5-0.5B
 * shape with random weights and a prompt of five tokens.
 *
 *   deno run -A tests/bench/cold_start.ts [--rounds 3] [--quantize q4,q8,none] [--max-tokens 1]
 *       [--against OTHER_TREE] [--llama FOLDER_OF_PROGRAMS]
 *
 * Every row is a process of its own; they take turns, round by round, so that a busy machine slows them
 * alike. `run time` quantizes while it loads, `first start` keeps the weights it quantizes, `second start`
 * finds them, `folder` is what `convert --quantize` wrote, `before` is another tree of this project;
 * llama.cpp is `llama-completion` of `llama_native.sh`. Peak memory includes mapped pages of files. Files are made
 * once, in the system's temporary folder.
 */
import { existsSync, rmSync } from "node:fs";
import { parseArgs } from "@std/cli/parse-args";
import { GGUF_TYPES, randomGguf } from "./gguf.ts";
import { watchPeak } from "../resident.ts";
import { lastingFile, qwen05b, randomFolder } from "./random_model.ts";
import { medianOf } from "../../core/base/statistics.ts";
import { ROOT } from "../fixtures.ts";

const DENO = ["run", "-A", "--node-modules-dir=manual"];
const SHAPE = "qwen2.5-0.5b";
const HERE = ROOT.replace(/\/$/, "");
/** The program's cache, emptied before every first start. */
const CACHE = lastingFile("cache");
/** The prompt of every start. */
const PROMPT = lastingFile("cold.jsonl");

const flags = parseArgs(Deno.args, {
  string: ["rounds", "quantize", "against", "llama", "max-tokens"],
  default: { rounds: "3", quantize: "q4,q8,none", "max-tokens": "1" },
});

/** One way to start. */
interface Row {
  readonly name: string;
  readonly group: string;
  start(): Promise<Start>;
}

interface Start {
  readonly seconds: number;
  readonly peakBytes: number;
}

/** A checkpoint folder whose weights are links to the random ones. */
function modelFolder(): string {
  const folder = lastingFile("cold");
  randomFolder(qwen05b(1), SHAPE, folder);
  Deno.writeTextFileSync(PROMPT, '{"tokens":[5,6,7,8,9]}\n');
  return folder;
}

/** The folder in 8 or 4 bits; tells what writing it took. */
async function quantizedFolder(model: string, kind: string): Promise<string> {
  const out = `${model}-${kind}`;
  if (existsSync(`${out}/config.json`)) return out;
  const args = ["convert", "--model", model, "--quantize", kind, "--out", out, "--json"];
  const { seconds, peakBytes } = await timed([...DENO, `${ROOT}mod.ts`, ...args]);
  console.log(`convert --quantize ${kind}: ${seconds.toFixed(1)} s, ${megabytes(peakBytes)}`);
  return out;
}

const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(0)} MB`;

/** Starts a process and waits for its first output. */
async function timed(
  args: readonly string[],
  { program = Deno.execPath(), env = {} }: {
    program?: string;
    env?: Record<string, string>;
  } = {},
): Promise<Start> {
  const started = performance.now();
  const child = new Deno.Command(program, {
    args: [...args],
    env: { DENO_NO_UPDATE_CHECK: "1", ...env },
    stdin: "null",
    stdout: "piped",
    stderr: "null",
  }).spawn();
  const peak = watchPeak(child.pid);
  const reader = child.stdout.getReader();
  const { value } = await reader.read();
  const seconds = (performance.now() - started) / 1000;
  const peakBytes = peak();
  while (!(await reader.read()).done);
  if (!(await child.status).success || !value) throw new Error(`${args.join(" ")} failed`);
  return { seconds, peakBytes };
}

/** The command on a tree of this project. */
function ours(tree: string, model: string, quantize: string, more: readonly string[] = []) {
  const env = { PARSCALE_CACHE: CACHE };
  return () =>
    timed([
      ...DENO,
      `${tree}/mod.ts`,
      ...["generate", "--model", model, "--quantize", quantize, "--jsonl", ...more],
      ...["--max-tokens", flags["max-tokens"], PROMPT],
    ], { env });
}

/** The start that fills the cache, and one that finds it filled. */
function cachedRows(label: string, model: string, kind: string): Row[] {
  const start = ours(HERE, model, kind);
  const first = () => {
    rmSync(CACHE, { recursive: true, force: true });
    return start();
  };
  return [
    { name: `${label} first start`, group: kind, start: first },
    { name: `${label} second start`, group: kind, start },
  ];
}

function llama(kind: string, folder: string): Row {
  const type = GGUF_TYPES[kind]!;
  const args = [
    ...["-m", randomGguf(SHAPE, type), "-p", "a", "-n", flags["max-tokens"]],
    ...["-no-cnv", "--no-warmup", "--no-display-prompt"],
  ];
  const program = `${folder}/llama-completion`;
  return { name: `llama.cpp ${type}`, group: kind, start: () => timed(args, { program }) };
}

const model = modelFolder();
const rows: Row[] = [];
for (const kind of flags.quantize.split(",")) {
  const label = kind === "none" ? "f32" : kind;
  if (flags.against) {
    rows.push({ name: `${label} before`, group: kind, start: ours(flags.against, model, kind) });
  }
  if (kind === "none") rows.push({ name: label, group: kind, start: ours(HERE, model, kind) });
  else {
    const start = ours(HERE, model, kind, ["--no-weight-cache"]);
    rows.push({ name: `${label} run time`, group: kind, start });
    rows.push(...cachedRows(label, model, kind));
    const folder = await quantizedFolder(model, kind);
    rows.push({ name: `${label} folder`, group: kind, start: ours(HERE, folder, kind) });
  }
  if (flags.llama) rows.push(llama(kind, flags.llama));
}

const results = rows.map((): Start[] => []);
for (let round = 0; round < Number(flags.rounds); round++) {
  for (const [i, row] of rows.entries()) results[i]!.push(await row.start());
}

const firstOf = (group: string) => rows.findIndex((row) => row.group === group);
console.log(`${flags.rounds} rounds; the ratio is that of medians to the first row of a kind`);
for (const [i, { name, group }] of rows.entries()) {
  const seconds = results[i]!.map((start) => start.seconds);
  const ratio = medianOf(seconds) /
    medianOf(results[firstOf(group)]!.map((start) => start.seconds));
  const peak = Math.max(...results[i]!.map(({ peakBytes }) => peakBytes));
  console.log(
    `${name.padEnd(16)} ${medianOf(seconds).toFixed(2).padStart(6)} s ` +
      `(least ${Math.min(...seconds).toFixed(2)})  ${ratio.toFixed(2)}x  ${
        megabytes(peak).padStart(8)
      }`,
  );
}
