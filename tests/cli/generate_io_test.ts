/** `parscale generate` as a black box: input, errors, streams, files and signals. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import {
  assertRefusals,
  assertRefused,
  copyFolder,
  jsonLines,
  MODEL,
  parseLines,
  rowsOf,
} from "./models.ts";
import { parscale, runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { HANG_MS } from "../hang.ts";

const GENERATE = ["generate", "--model", MODEL];
const FEW = [...GENERATE, "--max-tokens", "4"];

/** Starts the program with a stdin that stays open, and hands out its lines of stdout. */
function start(args: readonly string[], cwd?: string) {
  const child = parscale(args, {
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
    ...(cwd === undefined ? {} : { cwd }),
  }).spawn();
  const writer = child.stdin.getWriter();
  const encoder = new TextEncoder();
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  return {
    child,
    write: (text: string) => writer.write(encoder.encode(text)),
    closeStdin: () => writer.close(),
    async line(): Promise<string> {
      while (!text.includes("\n")) {
        const { value, done } = await reader.read();
        if (done) return text;
        text += value;
      }
      const end = text.indexOf("\n");
      const line = text.slice(0, end);
      text = text.slice(end + 1);
      return line;
    },
  };
}

Deno.test("prompts from flags, FILE, - and stdin are the same prompts", () =>
  withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/rows`, jsonLines({ prompt: "a" }, "", { prompt: "b b" }));
    const stdin = await Deno.readTextFile(`${cwd}/rows`);
    const rows = await rowsOf([...FEW, "rows"], { cwd });
    assertEquals(rows.map(({ id }) => id), [0, 1]);
    assertEquals(await rowsOf([...FEW, "-"], { stdin }), rows);
    assertEquals(await rowsOf(FEW, { stdin }), rows);
    assertEquals(await rowsOf([...FEW, "--prompt", "a", "--prompt", "b b"]), rows);
    const both = await runParscale([...FEW, "rows", "--prompt", "a"], { cwd });
    assertRefused(both, 2, "`--prompt` cannot be combined with FILE");
  }));

Deno.test("text is one prompt without its last line end, also where it looks like JSON", async () => {
  const [[two], [flag], [json]] = await Promise.all([
    rowsOf(FEW, { stdin: "one\ntwo\n" }),
    rowsOf([...FEW, "--prompt", "one\ntwo"]),
    rowsOf([...FEW, "--input", "text"], { stdin: '{"prompt":"a"}\n' }),
  ]);
  assertEquals(two, flag);
  assertEquals(json.stats.prompt_tokens > 4, true);
  const lines = await runParscale([...FEW, "--input", "jsonl"], { stdin: "one\n" });
  assertEquals(lines.code, 3);
  assertStringIncludes(lines.stderr, "error: line 1 of stdin is not valid JSON");
});

Deno.test("ids are echoed whatever they are, row numbers count rows", async () => {
  const stdin = jsonLines({ id: "x", prompt: "a" }, { prompt: "a" }, {
    id: [1, { b: 2 }],
    prompt: "a",
  });
  const rows = await rowsOf(FEW, { stdin });
  assertEquals(rows.map(({ id }) => id), ["x", 1, [1, { b: 2 }]]);
});

Deno.test("a row the model cannot take gets an error, the others continue, exit 1", async () => {
  const stdin = jsonLines({ id: "a", tokens: [512] }, { prompt: "a" }, { prompt: "" });
  for (const args of [[], ["--num-beams", "2"], ["--temperature", "1", "--num-return", "2"]]) {
    const { code, stdout, stderr } = await runParscale([...FEW, "--jsonl", ...args], { stdin });
    const rows = parseLines(stdout);
    assertEquals([code, stderr, rows.map(({ id }) => id)], [1, "", ["a", 1, 2]]);
    assertEquals(rows[0], {
      id: "a",
      error: "cannot continue a prompt: token id 512 at position 0, " +
        "expected an integer from 0 to 511",
    });
    assertEquals(rows[2].error, "cannot continue a prompt: there are no tokens");
  }
  const alone = await runParscale(FEW, { stdin: jsonLines({ prompt: "" }) });
  assertRefused(alone, 3, "cannot continue a prompt: there are no tokens");
});

Deno.test("a line that is no row ends the command with 3 and its number", async () => {
  const after = (line: unknown) => runParscale(FEW, { stdin: jsonLines({ prompt: "a" }, line) });
  const at = "error: line 2 of stdin";
  await assertRefusals([
    [
      after("nonsense"),
      3,
      `${at} is not valid JSON: Unexpected token 'o', "nonsense" is not valid JSON\n`,
    ],
    [
      after({ text: "a" }),
      3,
      `${at}: found only "text", expected "prompt", "messages" or "tokens"\n`,
    ],
    [after({ tokens: ["1"] }), 3, `${at}: found ["1"] in "tokens", expected a list of numbers\n`],
    [after({ prompt: ["a"] }), 3, `${at}: found ["a"] in "prompt", expected text\n`],
  ]);
});

Deno.test("misuse ends with 2 and says what is expected", async () => {
  const few = `${FEW.join(" ")} --prompt a`;
  await assertRefusals([
    [
      `${few} --num-beams 2 --temperature 1`,
      2,
      "error: `--num-beams 2` cannot be combined with `--temperature`\n",
    ],
    [
      `${few} --num-return 3 --num-beams 2`,
      2,
      "error: `--num-return 3` needs `--temperature` above 0, or `--num-beams` of at least 3\n",
    ],
    [`${few} --top-p 0`, 2],
    [`${few} --temperature -1`, 2],
    [`${few} --max-tokens 0`, 2],
    [`${few} --eos x`, 2],
    [
      `${few} --quantize q8 --block-size 17`,
      2,
      "error: invalid value 17 for `--block-size`: must be 16, 32, 64, 128 or 256\n",
    ],
    [
      `${few} --eos 1,512`,
      2,
      "error: `--eos 512` is no token: the vocabulary has ids 0 to 511\n",
    ],
    // Known before anything is computed.
    [
      `${few} --memory-limit 1`,
      4,
      "error: the model exceeds the memory limit of 1 bytes: it needs ",
    ],
  ]);
});

Deno.test("a flag that changes nothing is a warning, silenced by -q", async () => {
  const idle = "--top-k 5 --top-p 0.9 --min-p 0.1 --length-penalty 2 --early-stopping true".split(
    " ",
  );
  const { code, stderr } = await runParscale([...FEW, "--prompt", "a", ...idle]);
  assertEquals(code, 0);
  const flags = [...stderr.matchAll(/^warning: `(\S+)` has no effect without/gm)].map(([, flag]) =>
    flag
  );
  assertEquals(flags, idle.filter((arg) => arg.startsWith("--")));
  assertStringIncludes(stderr, "warning: `--top-k` has no effect without `--temperature`\n");
  const quiet = await runParscale([...FEW, "--prompt", "a", ...idle, "-q"]);
  assertEquals(quiet.stderr, "");
});

Deno.test("--max-tokens beyond the model's context is a warning", async () => {
  const args = ["generate", "--model", MODEL, "--prompt", "a", "--stop", "e", "--max-tokens"];
  const { code, stderr } = await runParscale([...args, "2048"]);
  assertEquals(code, 0);
  assertStringIncludes(
    stderr,
    "warning: --max-tokens 2048 exceeds what the model's context of 2048",
  );
  assertEquals((await runParscale([...args, "2047"])).stderr, "");
});

Deno.test("an empty stdin gives an empty result and a warning, a closed one does too", async () => {
  const empty = await runParscale([...FEW, "--jsonl"]);
  const warning = "warning: there are no prompts in the input\n";
  assertEquals(empty, { code: 0, stdout: "", stderr: warning });
  const json = await runParscale([...FEW, "--json"], { stdin: "" });
  assertEquals([json.code, JSON.parse(json.stdout).results], [0, []]);
  const closed = await runShell(`parscale ${FEW.join(" ")} --jsonl <&-; echo $?`);
  assertEquals([closed.stdout, closed.stderr], ["0\n", warning]);
});

Deno.test("ids need no tokenizer and then have no text; text and --stop need one", () =>
  withScratch(async (folder) => {
    const model = await copyFolder(MODEL, `${folder}/m`, {
      "tokenizer.json": undefined,
      "tokenizer_config.json": undefined,
    });
    const run = ["generate", "--model", model, "--max-tokens", "3"];
    const stdin = jsonLines({ tokens: [1, 2] });
    const [[with_], [without]] = await Promise.all([
      rowsOf([...FEW.slice(0, 3), "--max-tokens", "3"], { stdin }),
      rowsOf(run, { stdin }),
    ]);
    assertEquals(without, { ...with_, text: null });
    const [beam] = await rowsOf([...run, "--num-beams", "2"], { stdin });
    assertEquals(beam.text, null);
    const table = await runParscale(run, { stdin });
    assertEquals([table.code, table.stdout.trim().split("\n").length], [0, 2]);
    for (const args of [["--prompt", "a"], ["--stop", "a"]]) {
      const { code, stderr } = await runParscale([...run, ...args], { stdin });
      assertEquals(code, 3);
      assertStringIncludes(stderr, `error: "${model}" has no tokenizer: `);
    }
  }));

Deno.test("--jsonl answers early rows while stdin is open, in input order", async () => {
  const run = start([...FEW, "--jsonl"]);
  await run.write(jsonLines({ id: "first", prompt: "a" }));
  assertEquals(JSON.parse(await run.line()).id, "first");
  await run.write(jsonLines({ id: "second", prompt: "b" }, { id: "third", prompt: "c" }));
  assertEquals(JSON.parse(await run.line()).id, "second");
  assertEquals(JSON.parse(await run.line()).id, "third");
  await run.closeStdin();
  const { code } = await run.child.status;
  assertEquals([code, await run.child.stderr.text()], [0, ""]);
});

Deno.test("the first of many rows is out long before the last is computed", {
  timeout: HANG_MS,
}, async () => {
  const run = start([
    ...GENERATE,
    "--jsonl",
    "--batch",
    "2",
    "--max-tokens",
    "2000",
    "--ignore-eos",
  ]);
  // All rows take many minutes.
  await run.write(jsonLines(...Array.from({ length: 500 }, (_, i) => ({ tokens: [i + 1] }))));
  await run.closeStdin();
  assertEquals(JSON.parse(await run.line()).id, 0);
  run.child.kill("SIGKILL");
  await run.child.status;
  await run.child.stderr.cancel();
});

Deno.test("pipelines: jq reads rows, a reader that leaves ends it quietly", async () => {
  const rows = `for i in {1..100}; do echo '{"tokens":[1,2,3]}'; done`;
  const command = `parscale ${FEW.join(" ")} --jsonl`;
  const read = await runShell(`${rows} | ${command} | jq -s 'map(.id) | add'`);
  assertEquals([read.stdout, read.stderr], ["4950\n", ""]);
  const long = `parscale ${GENERATE.join(" ")} --prompt 2+2= --max-tokens 1500 --ignore-eos`;
  for (const gone of [`${rows} | ${command}`, long]) {
    const { stdout, stderr } = await runShell(
      `set -o pipefail; ${gone} | head -c 40 | wc -c; echo $?`,
    );
    assertEquals([stdout.trim(), stderr], ["40\n0", ""]);
  }
});

Deno.test("-o: a file that is whole or absent, also for plain text; --overwrite replaces", () =>
  withScratch(async (cwd) => {
    const run = (...args: string[]) =>
      runParscale([...FEW, "--prompt", "a", "-o", "out", ...args], { cwd });
    assertEquals(await run(), { code: 0, stdout: "", stderr: "" });
    const text = (await runParscale([...FEW, "--prompt", "a"])).stdout;
    assertEquals(await Deno.readTextFile(`${cwd}/out`), text);
    assertEquals((await run("--jsonl")).code, 2);
    assertEquals((await run("--jsonl", "--overwrite")).code, 0);
    assertEquals(parseLines(await Deno.readTextFile(`${cwd}/out`)).length, 1);
    assertEquals([...Deno.readDirSync(cwd)].map(({ name }) => name), ["out"]);
    const dash = await runParscale([...FEW, "--prompt", "a", "-o", "-"], { cwd });
    assertEquals(dash.stdout, text);
  }));

Deno.test("SIGINT and SIGTERM end a long run with 130 and 143, and leave no file", async () => {
  const slow = ["--max-tokens", "2000", "--ignore-eos"];
  for (const [signal, code] of [["SIGINT", 130], ["SIGTERM", 143]] as const) {
    for (const device of ["cpu", "reference"]) {
      await withScratch(async (cwd) => {
        const run = start([...GENERATE, ...slow, "--jsonl", "-o", "out", "--device", device], cwd);
        await run.write(jsonLines({ tokens: [1] }));
        // The file under its temporary name shows that the run is under way.
        while ([...Deno.readDirSync(cwd)].length === 0) await new Promise((r) => setTimeout(r, 20));
        await new Promise((resolve) => setTimeout(resolve, 100));
        run.child.kill(signal);
        assertEquals((await run.child.status).code, code);
        assertEquals([...Deno.readDirSync(cwd)], []);
        await Promise.all([run.child.stderr.cancel(), run.closeStdin().catch(() => {})]);
        await run.line();
      });
    }
  }
});

Deno.test("the first argument is the model, the second the prompt; flags say the same", async () => {
  const flags = ["--max-tokens", "4"];
  const said = await runParscale(["generate", "--model", MODEL, "--prompt", "hello", ...flags]);
  assertEquals(await runParscale(["generate", MODEL, "hello", ...flags]), said);
  assertEquals(await runParscale(["generate", MODEL, "--prompt", "hello", ...flags]), said);
  assertEquals(await runParscale(["generate", MODEL, ...flags], { stdin: "hello" }), said);
  const variable = { PARSCALE_MODEL: MODEL };
  await withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/file`, "hello");
    assertEquals(await runParscale(["generate", "file", ...flags], { cwd, env: variable }), said);
  });
  assertEquals((await runParscale(["inspect", MODEL])).code, 0);
});

Deno.test("a file of prompts or - behind the model is read, and is no prompt", () =>
  withScratch(async (cwd) => {
    const stdin = jsonLines({ prompt: "a" }, { prompt: "b b" });
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, stdin);
    const expected = await rowsOf([...FEW, "rows.jsonl"], { cwd });
    const few = ["--max-tokens", "4"];
    assertEquals(await rowsOf(["generate", MODEL, "rows.jsonl", ...few], { cwd }), expected);
    assertEquals(await rowsOf(["generate", MODEL, "-", ...few], { cwd, stdin }), expected);
  }));

Deno.test("a prompt where a file or a model should be is told which flag was meant", async () => {
  const told = (error: string, flag: string) =>
    `error: ${error}\n\nhint: did you mean \`${flag}\`?\n`;
  const file = (name: string) => `no such file: "${name}"`;
  await assertRefusals([
    [[...GENERATE, "the sky is"], 2, told(file("the sky is"), '--prompt "the sky is"')],
    [[...GENERATE, "sky"], 2, told(file("sky"), "--prompt sky")],
    [["generate", "the sky is"], 2, told("`generate` needs `--model`", '--prompt "the sky is"')],
  ]);
});
