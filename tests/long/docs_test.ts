/**
 * Every command of README.md, CONTRIBUTING.md and docs/ runs, page by page.
 *
 * A page's `sh` blocks run in order in one folder that has what the documents name (docs_folder.ts).
 * `SHORTER` cuts long commands short, `ELSEWHERE` knows the lines that other tests run, and blocks
 * marked `network` are left out. `ts` blocks run as programs. Headings of the output shown in a `text` block must come out of a
 * block before it in its section; lines of a `console` block are the messages of the command above.
 */
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { runShell } from "../cli/run.ts";
import { TestServer } from "../cli/serve_testing.ts";
import { DOCS } from "../unit/pages.ts";
import { furnish } from "./docs_folder.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

const PAGES = ["README.md", "CONTRIBUTING.md", ...DOCS];

/** Lines that run elsewhere, and where. */
const ELSEWHERE: readonly (readonly [pattern: RegExp, where: string])[] = [
  [/^deno run -A example\.ts/, "the `ts` block before it runs"],
  [/^git clone <repository-url>/, "a clone is what the tests run in"],
  [/^npx -y deno@2\.9\.6 (install|task (check|test))/, "CI, on a machine with Node alone"],
  [/^npx -y deno@2\.9\.6 task demo/, "tests/long/demo_test.ts"],
  [/^npx -y deno@2\.9\.6 task setup/, "tests/cli/setup_test.ts"],
  [/^deno run -A tests\/bench\//, "benchmarks, which need a quiet machine and other programs"],
  [/^deno task (bench|coverage)/, "the same"],
  [/^deno task test:gpu --emulated/, "tests/long/gpu_script_test.ts"],
  [/^deno task test:gpu/, "needs a GPU"],
  [/^deno task (law|study)/, "studies, which take minutes to days"],
  [/^deno task test:platform/, "needs emulators, and root to install them"],
  [/^podman |^bash tests\/platform\/container/, "needs a container engine"],
  [/^deno task (compile|bundle|test:release)/, "tests/release; a base program is downloaded"],
  [/^tar -xf /, "tests/release/bundle_test.ts"],
  [/^PARSCALE_(HF_PYTHON|ORT_WEB)=/, "tests/interop, which needs other programs"],
  [/^deno test -A tests\//, "runs a test, which the suite does"],
  [/^(mpirun|srun|torchrun|sbatch) /, "tests/long/mpi_training_test.ts and slurm_test.ts"],
  [/^lm_eval /, "tests/cli/serve_harness_test.ts"],
  [/^llm /, "tests/interop/clients_test.ts"],
];

const DENO = `'${Deno.execPath()}' run -A --node-modules-dir=manual`;

/** Replacements that make a command short enough, in this order. */
const SHORTER: readonly (readonly [pattern: RegExp, replacement: string])[] = [
  [/^npx -y deno@2\.9\.6 run -A (fixtures\/\S+)/, `${DENO} '${ROOT}'$1`],
  [/--rows 30000/, "--rows 3000"],
  [/^curl -N/, "curl -sSfN"],
  [/^(parscale train --preset .*?|parscale train .*--preset .*?)( --dry-run)?$/, "$1 --dry-run"],
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
  [/(parscale bench --compare .*--against \S+)/, "$1 --tolerance 100000%"],
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

function shorter(line: string): string {
  return SHORTER.reduce((text, [pattern, by]) => text.replace(pattern, by), line);
}

const words = (line: string) => line.trim().split(/\s+/).join(" ");

/** Lines of shown output that are the same everywhere: without a number or letters of streams. */
function headings(text: string): string[] {
  return text.split("\n").map(words).filter((line) =>
    line !== "" && !/(?<![\w.])[\d−-]|^[A-D ]+$/.test(line)
  );
}

/** Removes the result of an earlier line, or of furnishing, that a line is about to write. */
async function clear(cwd: string, line: string): Promise<void> {
  const out = / --out (\S+)/.exec(line)?.[1];
  if (!out || /--resume|--dry-run/.test(line)) return;
  await Deno.remove(`${cwd}/${out}`, { recursive: true }).catch(() => {});
}

/** Runs a line to its end; a server stays up until the end of the page. */
async function runLine(cwd: string, line: string, servers: TestServer[]): Promise<string> {
  const serve = /^parscale serve (.*)$/.exec(line);
  if (serve) {
    servers.push(await TestServer.start(serve[1]!.split(" "), {}, { cwd }));
    return "";
  }
  const command = shorter(line).replace("http://127.0.0.1:8000", servers.at(-1)?.url ?? "");
  await clear(cwd, command);
  const env = { PARSCALE_CACHE: `${cwd}/cache` };
  const { code, stdout, stderr } = await runShell(command, { cwd, env });
  assertEquals(code, 0, `${command}\n${stderr}`);
  return stdout + stderr;
}

/** Runs `$ …` lines, which fail, and looks for the lines after each in what they say. */
async function runConsole(cwd: string, text: string): Promise<void> {
  for (const part of text.split(/^\$ /m).slice(1)) {
    const [command, ...expected] = part.trim().split("\n");
    const { code, stderr } = await runShell(command!, { cwd });
    assert(code > 0, `${command} ended with ${code}`);
    for (const line of expected) assertStringIncludes(stderr, line, command);
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
        if (!isElsewhere(line)) output.push(words(await runLine(cwd, line, servers)));
      }
    } else if (block.kind === "ts") {
      await runProgram(cwd, block.text);
    } else if (block.kind === "console") {
      await runConsole(cwd, block.text);
    } else if (block.kind === "text" && output.length > 0) {
      for (const heading of headings(block.text)) {
        assertStringIncludes(output.join(" "), heading, page);
      }
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
  });
}

Deno.test("commands of the documents that run elsewhere are known", () => {
  const unknown = PAGES.flatMap((page) =>
    blocks(page).filter(({ kind }) => kind === "sh").flatMap(({ text }) => shellLines(text))
  ).filter((line) =>
    !/(^|\| )parscale /.test(line) && !isElsewhere(line) && shorter(line) === line
  );
  assertEquals(unknown, [
    "grep '\"held_out_name\":false' problems/test.jsonl | head -n 200 > held.jsonl",
  ]);
});
