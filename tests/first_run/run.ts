/**
 * The first run on a machine with network: everything that only the real hub can confirm.
 *
 *   deno task first-run [--model Qwen/Qwen2.5-0.5B] [--tasks general,math,race,ifeval,code]
 *       [--rows 20] [--python PYTHON]
 *
 * Fetches the model and every pinned benchmark, compares log-probabilities with transformers where
 * PYTHON has it, evaluates some rows, serves one answer, and prints one report in Markdown. Steps are
 * independent: a failed one is reported, and the rest still runs.
 */
import { fileURLToPath } from "node:url";
import { parseArgs } from "@std/cli/parse-args";
import { ROOT } from "../fixtures.ts";

const flags = parseArgs(Deno.args, {
  string: ["model", "tasks", "eval-tasks", "rows", "python"],
  default: {
    model: "Qwen/Qwen2.5-0.5B",
    tasks: "general,math,race,ifeval,code",
    "eval-tasks": "arc_easy,winogrande",
    rows: "20",
    python: "python3",
  },
});

const ENTRY = `${ROOT}mod.ts`;
const SCORES = fileURLToPath(new URL("transformers_scores.py", import.meta.url));
const PROMPT = "The capital of France is", CONTINUATION = " Paris. It lies on the river Seine";

/** Log-probabilities in f32, each computed in another order. */
const TOLERANCE = 1e-3;

interface Step {
  readonly name: string;
  readonly result: "ok" | "failed" | "skipped";
  readonly seconds: number;
  readonly details: string;
}

class Skipped extends Error {}

const steps: Step[] = [];

/** Runs one step; `work` returns what the report says of it. */
async function step(name: string, work: () => Promise<string>): Promise<void> {
  console.error(`${name} ...`);
  const began = performance.now();
  const finish = (result: Step["result"], details: string) =>
    steps.push({ name, result, seconds: (performance.now() - began) / 1000, details });
  try {
    finish("ok", await work());
  } catch (error) {
    finish(error instanceof Skipped ? "skipped" : "failed", (error as Error).message);
  }
}

/** Runs parscale and returns its standard output; progress stays on the terminal. */
async function parscale(args: readonly string[], stdin?: string): Promise<string> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--node-modules-dir=manual", ENTRY, ...args],
    stdin: stdin === undefined ? "null" : "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  if (stdin !== undefined) await new Response(stdin).body!.pipeTo(child.stdin);
  const { code, stdout, stderr } = await child.output();
  if (code === 0) return new TextDecoder().decode(stdout);
  throw new Error(`exit code ${code}: ${new TextDecoder().decode(stderr).trim()}`);
}

const { model, tasks, rows, python } = flags;

async function scoresOfTransformers(): Promise<Deno.CommandOutput> {
  try {
    return await new Deno.Command(python, { args: [SCORES, model, PROMPT, CONTINUATION] }).output();
  } catch (error) {
    throw new Skipped((error as Error).message);
  }
}

await step(`fetch and check ${model}`, async () => {
  const { results } = JSON.parse(
    await parscale(["inspect", "--model", model, "--check", "--json"]),
  );
  return `${results.family}, ${results.params} parameters`;
});

for (const task of tasks.split(",")) {
  await step(`fetch ${task}`, async () => {
    const text = await parscale(["eval", "fetch", task, "--jsonl"]);
    const files = text.trim().split("\n").map((line) => JSON.parse(line));
    const unpinned = files.filter(({ pinned }) => pinned === "no");
    const lines = unpinned.map(({ repository, file, bytes, sha256 }) =>
      `${repository} ${file} (${bytes}) ${sha256}`
    );
    return [`${files.length} files`, ...lines].join("; to pin: ");
  });
}

await step("log-probabilities equal those of transformers", async () => {
  const row = { prompt: PROMPT, continuation: CONTINUATION };
  const scored = await parscale(
    ["score", "--model", model, "--dtype", "f32", "--jsonl"],
    JSON.stringify(row) + "\n",
  );
  const ours: number[] = JSON.parse(scored).token_logprobs;
  const { success, stdout, stderr } = await scoresOfTransformers();
  if (!success) {
    const reason = new TextDecoder().decode(stderr).trim().split("\n").at(-1) ?? "";
    if (reason.startsWith("ModuleNotFoundError")) throw new Skipped(reason);
    throw new Error(reason);
  }
  const theirs: number[] = JSON.parse(new TextDecoder().decode(stdout).trim().split("\n").at(-1)!);
  const worst = Math.max(...ours.map((value, i) => Math.abs(value - theirs[i]!)));
  const found = `${ours.length} tokens, largest difference ${worst.toExponential(1)}`;
  if (ours.length !== theirs.length || !(worst <= TOLERANCE)) throw new Error(found);
  return found;
});

await step(`evaluate ${rows} rows`, async () => {
  const args = ["--tasks", flags["eval-tasks"], "--limit", rows, "--json"];
  const { results } = JSON.parse(await parscale(["eval", "--model", model, ...args]));
  return results.tasks.map((
    { task, metrics: [{ metric, value }] }: {
      task: string;
      metrics: [{ metric: string; value: number }];
    },
  ) => `${task} ${metric} ${value.toFixed(3)}`).join(", ");
});

await step("serve one answer", async () => {
  const server = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--node-modules-dir=manual", ENTRY, "serve", "--model", model]
      .concat("--port", "0", "--json"),
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const stderr = new Response(server.stderr).text();
  const lines = server.stdout.pipeThrough(new TextDecoderStream()).getReader();
  try {
    const { value, done } = await lines.read();
    if (done) throw new Error((await stderr).trim());
    const response = await fetch(`${JSON.parse(value).url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ prompt: PROMPT, max_tokens: 16, temperature: 0 }),
    });
    const document = await response.json();
    if (!response.ok) throw new Error(document.error.message);
    return JSON.stringify(document.choices[0].text.trim());
  } finally {
    lines.releaseLock();
    server.kill("SIGTERM");
    await server.status;
  }
});

const { os, arch } = Deno.build;
console.log(`# First run of parscale\n\nDeno ${Deno.version.deno}, ${os} ${arch}\n`);
console.log("| step | result | s | details |\n|---|---|---:|---|");
for (const { name, result, seconds, details } of steps) {
  const text = details.replaceAll("|", "\\|").replace(/\s*\n\s*/g, " / ");
  console.log(`| ${name} | ${result} | ${seconds.toFixed(1)} | ${text} |`);
}
Deno.exit(steps.some(({ result }) => result === "failed") ? 1 : 0);
