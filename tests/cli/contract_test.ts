/**
 * Lines of the command-line contract that concern all commands alike: names that scripts rely on, the
 * shape of documents, no network, no waiting for a terminal, no words of the runtime.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { flagsOf, loadAll } from "../../cli/framework/command.ts";
import { commands as entries } from "../../cli/commands/mod.ts";
import { main } from "../../cli/main.ts";
import { commonFlags, engineFlags } from "../../cli/framework/common.ts";
import { captureIo } from "../unit/cli/capture_io.ts";
import { DATA } from "./eval_testing.ts";
import { jsonLines, MODEL, parseLines } from "./models.ts";
import { Host } from "./host_client.ts";
import { environment, runCommand, runShell, wordsOf } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { ROOT } from "../fixtures.ts";

const commands = await loadAll(entries);
const CONFIG = `${ROOT}deno.json`;
const TOKENS = jsonLines({ tokens: [1, 2, 3] });

/** The names fixed in section 12, without those that all commands have. */
const NAMES: Readonly<Record<string, string>> = {
  convert: "model out streams prefix-tokens prefix-init smoothing seed introduced-only strip " +
    "max-shard-size",
  score: "model adapter stream-weights",
  generate: "max-tokens temperature top-k top-p min-p seed stop eos ignore-eos num-beams " +
    "num-return length-penalty chat",
  inspect: "model tokenize detokenize",
  train: "model data out train-params steps tokens batch micro-batch seq-len lr lr-prefix " +
    "lr-aggregator lr-min schedule warmup weight-decay clip shuffle pack eval-data eval-every " +
    "save-every resume seed",
  cost: "hidden-size intermediate-size num-layers num-heads num-kv-heads vocab-size streams " +
    "prefix-tokens batch input output device flops-efficiency memory-efficiency method",
  fit: "law bootstrap predict",
  plot: "x measure ema label log svg",
  eval:
    "quantize model tasks data limit ids shots n-samples temperature out resume predict-only score " +
    "allow-code-execution fail-under shard preset",
  bench: "model streams rounds steps",
};

Deno.test("the commands and flags that scripts rely on are there", () => {
  const present = commands.map(({ name }) => name);
  const promised = [...Object.keys(NAMES), "compare", "visualize", "doctor", "help", "completions"];
  assertEquals(promised.filter((name) => !present.includes(name)), []);
  for (const command of commands) {
    const flags = flagsOf(command);
    const names = (NAMES[command.name] ?? "").split(" ").filter((name) => name !== "");
    assertEquals(names.filter((name) => !(name in flags)), [], command.name);
    assertEquals(Object.keys(commonFlags).filter((name) => !(name in flags)), [], command.name);
  }
  const defaultOf = (command: string, name: string) => {
    const flag = flagsOf(commands.find((each) => each.name === command)!)[name]!;
    return "default" in flag && flag.default;
  };
  const prefixes = ["prefix-tokens", "smoothing"].map((name) => defaultOf("convert", name));
  assertEquals(prefixes, [48, 0.1]);
  assertEquals(["shuffle", "pack"].map((name) => defaultOf("train", name)), [true, true]);
});

Deno.test("commands that run a model have every engine flag; the letters are the few there are", () => {
  // An adapter is one of the things that compare compares, so it has a flag of another name.
  for (const name of ["train", "generate", "score", "eval", "compare", "visualize", "bench"]) {
    const { flags } = commands.find((command) => command.name === name)!;
    const missing = Object.keys(engineFlags).filter((flag) => !(flag in flags));
    assertEquals(missing, name === "compare" ? ["adapter"] : [], name);
  }
});

Deno.test("devices and element types have the names that scripts rely on", () => {
  const { device, dtype } = engineFlags;
  const devices = ["auto", "cpu", "webgpu", "cuda", "cuda:1", "reference"] as const;
  assertEquals(devices.filter((name) => !device.choices.includes(name)), []);
  assertEquals(dtype.choices, ["auto", "f32", "bf16", "f16"]);
});

Deno.test("secrets are never flags", () => {
  const secret = /(^|-)(token|key|password|secret|credentials?)$/;
  const found = commands.flatMap(({ flags }) => Object.keys(flags)).filter((name) =>
    secret.test(name) && name !== "end-token" // of a text
  );
  assertEquals(found, []);
});

/** One invocation of every command that has a document, short enough for a test. */
const DOCUMENTS: readonly (readonly [args: string, stdin?: string])[] = [
  [`convert --model ${MODEL} --strip --out plain`],
  [`score --model ${MODEL}`, TOKENS],
  [`generate --model ${MODEL} --max-tokens 2`, TOKENS],
  [`train --model ${MODEL} --data - --no-pack --seq-len 8 --batch 1 --steps 1 --out run`, TOKENS],
  [`eval --model ${MODEL} --data ${DATA} --tasks sciq --ids 0`],
  [`visualize - --model ${MODEL}`, TOKENS],
  [`inspect --model ${MODEL}`],
  ["cost --model 1.6B"],
  ["fit --data-set stack-v2-python"],
  ["plot -", jsonLines({ step: 1, tokens: 8, loss: 2 })],
  [`bench --model ${MODEL} --rounds 1 --steps 1 --context 4 --prompt 4`],
  ["doctor"],
  ["help formats"],
];

const HEAD = "schema version command config seed device started_at duration_s results".split(" ");

/** Fields of the results, or of their first row, that scripts rely on. */
const FIELDS: Readonly<Record<string, string>> = {
  convert: "introduced_params backbone_sha256 tensors",
  score: "id tokens token_logprobs loglikelihood is_greedy",
  generate: "id text tokens finish_reason stats",
  inspect: "family streams params memory_bytes",
  cost: "streams batch input output memory_bytes latency_s",
  fit: "parameters huber_loss r2 rows starts_converged",
  bench: "what streams batch context device samples_ms median_ms spread_ms version",
  doctor: "check status found remedy",
};

/** Values at any depth, each with the key it stands under. */
function* entriesIn(value: unknown, name = ""): Generator<readonly [string, unknown]> {
  if (typeof value !== "object" || value === null) yield [name, value];
  else if (Array.isArray(value)) { for (const item of value) yield* entriesIn(item, name); }
  else for (const [key, item] of Object.entries(value)) yield* entriesIn(item, key);
}

/** A process that cannot reach the network. */
const offline = new Host(environment(), ["-A", "--deny-net"]);

Deno.test("without the network, documents have one head, snake_case keys and the config that repeats them", () =>
  withScratch(async (cwd) => {
    for (const [line, stdin = ""] of DOCUMENTS) {
      const env = environment({ PARSCALE_CACHE: `${cwd}/cache` });
      const args = [...wordsOf(line), "--json", "-q"];
      const { code, stdout, stderr } = await offline.run({ args, env, cwd, stdin });
      assertEquals([code, stderr], [0, ""], line);
      const document = JSON.parse(stdout);
      assertEquals(Object.keys(document), HEAD, line);
      assertEquals([document.command, typeof document.config], [line.split(" ")[0], "object"]);
      assert(/^parscale\.[a-z_]+\/\d+$/.test(document.schema), document.schema);
      assertEquals(new Date(document.started_at).toISOString(), document.started_at);
      assert(document.seed === null || Number.isInteger(document.seed));
      const { results } = document;
      const fields = FIELDS[document.command]?.split(" ") ?? [];
      const first = Array.isArray(results) ? results[0] : results;
      assertEquals(fields.filter((field) => !(field in first)), [], line);
      for (const [key, value] of entriesIn(results)) {
        assert(/^([a-z0-9]+(_[a-z0-9]+)*|[EAPNk])?$/.test(key), `${line}: ${key}`);
        const isNumber = typeof value === "string" && /^-?\d+(\.\d+)?$/.test(value);
        assert(!isNumber || key === "text", `${line}: ${key} holds "${value}"`);
      }
    }
    const [step] = parseLines(await Deno.readTextFile(`${cwd}/run/metrics.jsonl`));
    const fields = ["step", "tokens", "loss", "grad_norm", "lr", "tokens_per_s", "eval_loss"];
    assertEquals(fields.filter((field) => !(field in step)), []);
    assertEquals(step.step, 1);
  }));

Deno.test("a reader that leaves ends every command quietly with 0", () =>
  withScratch(async (cwd) => {
    for (const [line, stdin = ""] of [...DOCUMENTS, ["cost ls"], ["eval ls"]] as typeof DOCUMENTS) {
      const script = `parscale ${line} -q --jsonl | true; echo \${PIPESTATUS[0]}`;
      const env = { PARSCALE_CACHE: `${cwd}/cache` };
      const result = await runShell(script, { cwd, stdin, env });
      assertEquals(result, { code: 0, stdout: "0\n", stderr: "" }, line);
    }
  }));

Deno.test("a terminal instead of input is misuse with short help, never a silent wait", () =>
  withScratch(async (cwd) => {
    const lines = [
      `score --model ${MODEL}`,
      `generate --model ${MODEL}`,
      `visualize --model ${MODEL}`,
      `inspect --model ${MODEL} --tokenize -`,
      `train --model ${MODEL} --data - --steps 1 --out ${cwd}/run`,
      `eval --score - --tasks gsm8k --data ${DATA}`,
      "compare -",
      "cost --model -",
      "fit -",
    ];
    for (const line of lines) {
      const { io, stderr } = captureIo({ terminals: ["stdin", "stderr"], env: { TERM: "dumb" } });
      assertEquals(await main(line.split(" "), io), 2, `${line}: ${stderr()}`);
      assertStringIncludes(stderr(), `Usage: parscale ${line.split(" ")[0]} [flags]`);
      assertStringIncludes(stderr(), "error: no input: stdin is a terminal");
    }
  }));

Deno.test("deno task parscale is the same program", async () => {
  const task = [Deno.execPath(), "task", "-q", "--config", CONFIG, "parscale"];
  const { stdout, code } = await runCommand([...task, "help", "exit-codes", "--json"]);
  assertEquals([code, JSON.parse(stdout).schema], [0, "parscale.help/1"]);
});
