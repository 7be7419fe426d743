/**
 * Every command of README.md, CONTRIBUTING.md and docs/ runs, page by page.
 *
 * A page's `sh` blocks run in order in one folder that has what the documents name (docs_folder.ts).
 * `SHORTER` cuts long commands short, `ELSEWHERE` knows the lines that other tests run, and blocks
 * marked `network` are left out. `ts` blocks run as programs. Lines of output shown in a `text` block
 * must come out of a block before it in its section, with the same words and numbers in the same form;
 * lines of a `console` block are the messages of the command above.
 */
import { assert, assertEquals, AssertionError, assertThrows } from "@std/assert";
import { runShell } from "../cli/run.ts";
import { HAS_TERMINALS, runShellOnTerminal } from "../cli/terminal.ts";
import { TestServer } from "../cli/serve_testing.ts";
import { DOCS } from "../unit/pages.ts";
import { furnish } from "./docs_folder.ts";
import { ROOT } from "../fixtures.ts";

const PAGES = ["README.md", "CONTRIBUTING.md", ...DOCS];

/** Lines that run elsewhere, and where. */
const ELSEWHERE: readonly (readonly [pattern: RegExp, where: string])[] = [
  [/^deno run -A example\.ts/, "the `ts` block before it runs"],
  [/^git clone <repository-url>/, "a clone is what the tests run in"],
  [/^npx -y deno@2\.9\.6 (install|task (check|test))/, "CI, on a machine with Node alone"],
  [/^npx -y deno@2\.9\.6 task demo/, "tests/long/demo_test.ts"],
  [/^npx -y deno@2\.9\.6 task setup/, "tests/cli/setup_test.ts"],
  [/^deno run -A tests\/bench\//, "benchmarks, which need a quiet machine and other programs"],
  [/^(programs=\$\()?tests\/bench\/(llama_native|gguf_start)/, "the same, with llama.cpp"],
  [/^("\$programs\/llama-(batched-)?bench"|parscale bench --model FILE)/, "the same"],
  [/^deno task (bench|coverage)/, "the same"],
  [/^deno task test:gpu --emulated/, "tests/long/gpu_script_test.ts"],
  [/^(deno task test:gpu|deno run -A tests\/gpu\/|python3 bench_torch)/, "needs a GPU"],
  [/^deno task (distil|frozen|law|qwen|study)/, "studies, which take minutes to days"],
  [/^deno task test:platform/, "needs emulators, and root to install them"],
  [/^podman |^bash tests\/platform\/container/, "needs a container engine"],
  [/^(deno task (compile|bundle|test:release)|tar -xf )/, "tests/release, with a download"],
  [/^PARSCALE_(HF_PYTHON|LM_EVAL_PYTHON|ORT_WEB)=/, "tests/interop, which needs other programs"],
  [/^deno test -A tests\//, "runs a test, which the suite does"],
  [/^(mpirun|srun|torchrun|sbatch) /, "tests/long/mpi_training_test.ts and slurm_test.ts"],
  [/^(lm_eval|llm) /, "tests/cli/serve_harness_test.ts and tests/interop/clients_test.ts"],
];

const DENO = `'${Deno.execPath()}' run -A --node-modules-dir=manual`;

/** Trains longer than other pages, since it promises an effect. */
const TUTORIAL = "docs/tutorial.md";

/** The folders of runs are there from the start, of plans too. */
const PLAN = [/^(parscale train.*--dry-run)$/, "$1 --overwrite"] as const;

/** A replacement there: of the control only the form of its output is shown. */
const SHORTER_TUTORIAL: typeof SHORTER = [
  [/--warmup 10 --steps 200 (.*--out run-p1)/, "--warmup 1 --steps 4 $1"],
  [/--latency-rows 2/, "$& --limit 64"],
  [/--steps 200 --eval-every 50 (.*--out run-p4$)/, "--steps 100 --eval-every 100 $1"],
  PLAN,
];

/** Replacements that make a command short enough, in this order. */
const SHORTER: readonly (readonly [pattern: RegExp, replacement: string])[] = [
  [/--rows 30000/, "--rows 3000"],
  [/^curl -N/, "curl -sSfN"],
  [/^(parscale train --preset .*?|parscale train .*--preset .*?)( --dry-run)?$/, "$1 --dry-run"],
  PLAN,
  [/--micro-batch 4/, "--micro-batch 1"], // a plan times a step, in memory that other tests need
  [/^(parscale train(?!.*--micro-batch).*--dry-run.*)$/, "$1 --memory-limit 4GB"],
  [/^(parscale train(?!.*--dry-run)(?!.*--resume).*)$/, "$1 --batch 2"],
  [/^(parscale train(?!.*--dry-run)(?!.*--resume)(?!.*--seq-len).*)$/, "$1 --seq-len 48"],
  [/^(parscale train(?!.*--dry-run).*)--(tokens|epochs|steps) \S+/, "$1--steps 2"],
  [/ --warmup 10\b/, ""],
  [/--limit \d+/, "--limit 1"],
  [/^(parscale (eval --model|compare)(?!.*--limit)(?!.*--shard).*?)( \|\| .*)?$/, "$1 --limit 1$3"],
  [/^(parscale (eval --model|compare --model).*?)( \|\| .*)?$/, "$1 --max-tokens 4$3"],
  [/^(parscale generate(?!.*--max-tokens).*?)( <.*)?$/, "$1 --max-tokens 8$2"],
  [/--preset paper-1t/, "--preset paper-1t --n-samples 1"],
  [/--input 128 --output 32/, "--input 8 --output 2"],
  [/--bootstrap 500/, "--bootstrap 20"],
  [/(parscale bench --model \S+)/, "$1 --rounds 1 --prompt 32"],
];

/** A fenced block and the section it is in. */
interface Block {
  readonly section: number;
  readonly kind: string;
  readonly text: string;
}

function blocks(page: string): Block[] {
  const text = Deno.readTextFileSync(`${ROOT}${page}`);
  return [...text.matchAll(/^```([^\n]*)\n([\s\S]*?)^```$/gm)].map((match) => ({
    section: [...text.slice(0, match.index).matchAll(/^#+ /gm)].length,
    kind: match[1]!,
    text: match[2]!,
  }));
}

/** Shell lines without comments; a backslash at the end joins lines. */
function shellLines(text: string): string[] {
  return text.replaceAll("\\\n", " ").split("\n")
    .map((line) => line.replace(/\s+# .*$/, "").trim()).filter((line) => line && line[0] !== "#");
}

const isElsewhere = (line: string) => ELSEWHERE.some(([pattern]) => pattern.test(line));

/** A line as it runs in a page. */
function commandOf(line: string, page: string): string {
  const own = line.replace(/^npx -y deno@2\.9\.6 run -A (fixtures\/\S+)/, `${DENO} '${ROOT}'$1`);
  return (page === TUTORIAL ? SHORTER_TUTORIAL : SHORTER)
    .reduce((text, [pattern, by]) => text.replace(pattern, by), own);
}

const words = (line: string) => line.trim().split(/\s+/).join(" ");

/** Lines of output; letters of streams and answers of models may differ between machines. */
const linesOf = (text: string) =>
  text.split("\n").map(words).filter((line) => !/^[A-D ]*$|<<|^####/.test(line));

/**
 * Durations such as `1m02s` and the row `seconds`, which has no point if they are whole, and numbers
 * outside of words.
 */
const DURATION = /\b(\d+[hms])+\b|(?<=^seconds )[\d.]+$/g,
  NUMBER = /(?<![\w.])[+−-]?\d[\d,]*(\.\d+)?(e[+-]\d+)?%?(?!\w)/g;

/** A line with its numbers taken out, and these. */
function formOf(line: string): { readonly words: string; readonly numbers: readonly string[] } {
  const text = line.replace(DURATION, "T");
  return { words: text.replace(NUMBER, "#"), numbers: text.match(NUMBER) ?? [] };
}

/** Returns whether two numbers are written in one way: sign, percent, exponent, number of digits. */
function isAlike(a: string, b: string): boolean {
  const [one, other] = [styleOf(a), styleOf(b)];
  // A figure of as many digits in all has one more behind the point if it is a tenth.
  const isTenth = one.significant === other.significant && Math.abs(one.digits - other.digits) <= 1;
  return one.marks === other.marks &&
    (one.digits === other.digits || isTenth || one.isShort && other.isShort);
}

/** Marks of a number, its digits behind the point and in all, and whether both follow from its size. */
function styleOf(number: string) {
  const [, digits = ""] = /\.(\d+)/.exec(number) ?? [];
  const significant = number.replace(/e.*|\D/g, "").replace(/^0+/, "").length;
  return {
    marks: number.replace(/^[+−-]/, "±").replace(/e.*/, "e").replace(/[\d,.]/g, ""),
    digits: digits.length,
    significant,
    // Numbers without stated precision have up to six significant digits, and no zeros behind.
    isShort: digits !== "" && !digits.endsWith("0") && significant <= 6,
  };
}

/** Requires that a shown line came out: as it is, or with other numbers in the same form. */
function assertShown(shown: string, output: readonly string[], page: string): void {
  if (output.includes(shown)) return;
  const { words, numbers } = formOf(shown);
  const same = output.map(formOf).filter((form) => form.words === words);
  const isRight = same.some((form) => form.numbers.every((one, i) => isAlike(one, numbers[i]!)));
  assert(isRight, `${page} shows "${shown}", the output has:\n${output.join("\n")}`);
}

/** Removes the result of an earlier line, or of furnishing, that a line is about to write. */
async function clear(cwd: string, line: string): Promise<void> {
  const out = / --out (\S+)/.exec(line)?.[1];
  if (!out || /--resume|--dry-run/.test(line)) return;
  await Deno.remove(`${cwd}/${out}`, { recursive: true }).catch(() => {});
}

/** Runs a line to its end; a server stays up until the end of the page. */
async function runLine(
  cwd: string,
  line: string,
  page: string,
  servers: TestServer[],
): Promise<string> {
  const serve = /^parscale serve (.*)$/.exec(line);
  if (serve) {
    servers.push(await TestServer.start(serve[1]!.split(" "), {}, { cwd }));
    return "";
  }
  const command = commandOf(line, page).replace("http://127.0.0.1:8000", servers.at(-1)?.url ?? "");
  await clear(cwd, command);
  const env = { PARSCALE_CACHE: `${cwd}/cache` };
  const { code, stdout, stderr } = await runShell(command, { cwd, env });
  assertEquals(code, 0, `${command}\n${stderr}`);
  return stdout + stderr;
}

/** Runs `$ …` lines, which fail and say the lines after each, which may be the start of longer ones. */
async function runConsole(cwd: string, text: string): Promise<void> {
  for (const part of text.split(/^\$ /m).slice(1)) {
    const [command, ...expected] = part.trim().split("\n");
    const { code, stderr } = await runShell(command!, { cwd });
    assert(code > 0, `${command} ended with ${code}`);
    const lines = stderr.split("\n");
    const from = lines.findIndex((line) => line.startsWith(expected[0]!));
    const said = lines.slice(Math.max(0, from), from + expected.length);
    const starts = said.map((line, i) => line.slice(0, expected[i]!.length || undefined));
    assertEquals(starts, expected, stderr);
  }
}

/** Runs a program that imports parscale as a file of the clone does. */
async function runProgram(cwd: string, text: string): Promise<void> {
  Deno.writeTextFileSync(`${cwd}/example.ts`, text.replace("./mod.ts", `${ROOT}mod.ts`));
  const command = `${DENO} --config '${ROOT}deno.json' example.ts`;
  const { code, stderr } = await runShell(command, { cwd });
  assertEquals(code, 0, stderr);
}

async function runPage(cwd: string, page: string): Promise<void> {
  const servers: TestServer[] = [];
  await using stack = new AsyncDisposableStack();
  stack.defer(async () => {
    for (const server of servers) await server[Symbol.asyncDispose]();
  });
  let output: string[] = [], section = -1;
  for (const block of blocks(page)) {
    if (block.section !== section) output = [];
    section = block.section;
    if (block.kind === "sh") {
      for (const line of shellLines(block.text)) {
        if (!isElsewhere(line)) output.push(...linesOf(await runLine(cwd, line, page, servers)));
      }
    } else if (block.kind === "ts") {
      await runProgram(cwd, block.text);
    } else if (block.kind === "console") {
      await runConsole(cwd, block.text);
    } else if (block.kind === "text" && output.length > 0) {
      for (const line of linesOf(block.text)) assertShown(line, output, page);
    }
  }
}

let base = "";

Deno.test.beforeAll(async () => {
  base = await Deno.makeTempDir({ prefix: "parscale-docs-" });
  Deno.mkdirSync(`${base}/furnished`);
  await furnish(`${base}/furnished`);
});

Deno.test.afterAll(() => Deno.remove(base, { recursive: true }));

for (const page of PAGES) {
  Deno.test(`commands of ${page} run and print what is shown`, async () => {
    const cwd = `${base}/${page.replaceAll("/", "-")}.d`;
    const { code, stderr } = await runShell(`cp -a '${base}/furnished' '${cwd}'`);
    assertEquals(code, 0, stderr);
    await runPage(cwd, page);
    if (page === TUTORIAL) assert(await gainOf(cwd) >= 0.15, "the tutorial shows its effect");
  });
}

for (const page of PAGES) {
  Deno.test({
    name: `commands of ${page} break no word on a terminal of 80 columns`,
    ignore: !HAS_TERMINALS,
    fn: async () => {
      const cwd = `${base}/${page.replaceAll("/", "-")}.t`;
      await runShell(`cp -a '${base}/furnished' '${cwd}'`);
      const env = { PARSCALE_CACHE: `${cwd}/cache` };
      for (const { text } of blocks(page).filter(({ kind }) => kind === "sh")) {
        for (const line of shellLines(text).filter((line) => !isElsewhere(line))) {
          const command = commandOf(line, page);
          if (/^parscale serve |curl/.test(command)) continue;
          await clear(cwd, command);
          const { code, raw, brokenWords } = await runShellOnTerminal(command, { cwd, env });
          assertEquals(code, 0, raw);
          // Documents for programs are one line each.
          if (!/--jsonl?\b|^(?!parscale)/.test(command)) assertEquals(brokenWords, [], raw);
        }
      }
    },
  });
}

/** Exact match after the training of the tutorial less that before. */
async function gainOf(cwd: string): Promise<number> {
  const [before, after] = await Promise.all(["base", "results"].map(async (folder) => {
    const { results } = JSON.parse(await Deno.readTextFile(`${cwd}/${folder}/results.json`));
    return results.tasks[0].metrics[0].value as number;
  }));
  return after! - before!;
}

Deno.test("numbers of shown output are compared by their form", () => {
  const same = [["0.410", "0.387"], ["+0.010", "−0.020"], ["0.0995", "0.128"], ["97%", "8%"]]
    .concat([["2,146", "98"], ["1.0e-3", "9.1e-3"], ["0.4000", "0.0492"]])
    .concat([["0.09702", "0.0763116"], ["0.113", "0.0950"], ["0.142", "1.00"]]);
  for (const [a, b] of same) assert(isAlike(a!, b!), `${a} and ${b}`);
  const other = [["37.0", "0.400"], ["−3.0", "+0.000"], ["0.0", "+0.0"], ["40%", "40"]]
    .concat([["0.40", "0.4000"], ["12", "12.5"], ["1e-3", "0.001"]]);
  for (const [a, b] of other) assert(!isAlike(a!, b!), `${a} and ${b}`);
  const output = ["4 0.400 (+0.000 ± 0.085)"];
  assertShown("4 0.410 (+0.010 ± 0.107)", output, "a page");
  assertShown("seconds 331.2", ["seconds 86"], "a page");
  for (const line of ["4 37.0 (−3.0 ± 8.7)", "4 0.410 (0.010 ± 0.107)", "5 beams"]) {
    assertThrows(() => assertShown(line, output, "a page"), AssertionError, line);
  }
});

Deno.test("commands of the documents that run elsewhere are known", () => {
  const unknown = PAGES.flatMap((page) =>
    blocks(page).filter(({ kind }) => kind === "sh").flatMap(({ text }) => shellLines(text))
  ).filter((line) =>
    !/(^|\| )parscale /.test(line) && !isElsewhere(line) && commandOf(line, "") === line
  );
  assertEquals(unknown, [
    "cat scores-?.jsonl | jq -s -c 'sort_by(.id)[]' > scores.jsonl",
    `grep '"steps":3,"held_out_name":false' problems/test.jsonl > held.jsonl`,
  ]);
});
