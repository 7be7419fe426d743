/** `parscale generate` as a black box: input, rows with errors, streams, files and signals. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import {
  assertFailed,
  assertRefused,
  copyFolder,
  jsonLines,
  MODEL,
  names,
  NO_TOKENIZER,
  parseLines,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { parscale, runParscale, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { HANG_MS } from "../hang.ts";
import { CHAT_MODEL, makeAdapter } from "./serve_testing.ts";

const GENERATE = `generate --model ${MODEL}`;
const FEW = `${GENERATE} --max-tokens 4`;
const ENDLESS = `${GENERATE} --max-tokens 2000 --ignore-eos --jsonl`;

/** Starts the program with a stdin that stays open, and hands out its lines of stdout. */
function start(line: string, cwd?: string) {
  const pipes = { stdin: "piped", stdout: "piped", stderr: "piped" } as const;
  const child = parscale(line, { ...pipes, ...(cwd !== undefined && { cwd }) }).spawn();
  const writer = child.stdin.getWriter();
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  return {
    child,
    write: (text: string) => writer.write(new TextEncoder().encode(text)),
    closeStdin: () => writer.close(),
    async line(): Promise<string> {
      while (!text.includes("\n")) {
        const { value, done } = await reader.read();
        if (done) return text;
        text += value;
      }
      const end = text.indexOf("\n"), line = text.slice(0, end);
      text = text.slice(end + 1);
      return line;
    },
  };
}

Deno.test("prompts from flags, FILE, - and stdin are the same prompts", () =>
  withScratch(async (cwd) => {
    const stdin = jsonLines({ prompt: "a" }, "", { prompt: "b b" });
    await Deno.writeTextFile(`${cwd}/rows.jsonl`, stdin);
    const rows = await rowsOf(`${FEW} rows.jsonl`, { cwd });
    assertEquals(rows.map(({ id }) => id), [0, 1]);
    const positional = `generate ${MODEL} --max-tokens 4`;
    const lines = [`${FEW} -`, FEW, `${positional} rows.jsonl`, `${positional} -`];
    for (const line of [...lines, `${FEW} --prompt a --prompt 'b b'`]) {
      assertEquals(await rowsOf(line, { cwd, stdin }), rows, line);
    }
  }));

Deno.test("the first argument is the model, the second the prompt; flags say the same", () =>
  withScratch(async (cwd) => {
    const said = await succeed(`${FEW} --prompt hello`), env = { PARSCALE_MODEL: MODEL };
    for (const words of [`${MODEL} hello`, `${MODEL} --prompt hello`]) {
      assertEquals(await succeed(`generate ${words} --max-tokens 4`), said, words);
    }
    const line = "generate --max-tokens 4";
    assertEquals(await succeed(`${line} ${MODEL}`, { stdin: "hello" }), said);
    await Deno.writeTextFile(`${cwd}/file`, "hello");
    assertEquals(await succeed(`${line} file`, { cwd, env }), said);
  }));

Deno.test("text is one prompt without its last line end, also where it looks like JSON", async () => {
  const [[two], [flag], [json]] = await Promise.all([
    rowsOf(FEW, { stdin: "one\ntwo\n" }),
    rowsOf(`${FEW} --prompt 'one\ntwo'`),
    rowsOf(`${FEW} --input text`, { stdin: '{"prompt":"a"}\n' }),
  ]);
  assertEquals(two, flag);
  assertEquals(json.stats.prompt_tokens > 4, true);
});

Deno.test("bytes that are not UTF-8 are refused wherever they come from", () =>
  withScratch(async (cwd) => {
    await Deno.writeFile(`${cwd}/latin1`, Uint8Array.of(0x63, 0x61, 0x66, 0xe9, 0x0a));
    const rows: [line: string, words: string, onLinux?: boolean][] = [
      [`chat ${CHAT_MODEL} < latin1`, "line 1 of stdin is not UTF-8"],
      [`(echo hi; cat latin1) | parscale chat ${CHAT_MODEL}`, "line 2 of stdin is not UTF-8"],
      [`${FEW} < latin1`, "stdin is not valid UTF-8"],
      [`${FEW} --chat --chat-template latin1 --prompt x`, '"latin1" is not UTF-8 text'],
      [`${FEW} --config latin1 --prompt x`, '"latin1" is not UTF-8 text'],
      [`${FEW} --prompt "$(cat latin1)"`, "the argument", true],
      [`PARSCALE_DEVICE="$(cat latin1)" parscale ${FEW} --prompt x`, "the environment", true],
    ];
    for (const [line, words, onLinux] of rows) {
      if (onLinux && Deno.build.os !== "linux") continue;
      const script = line.includes("parscale ") ? line : `parscale ${line}`;
      const { code, stderr } = await runShell(script, { cwd });
      assert(code !== 0 && code !== 70, line);
      assertStringIncludes(stderr, words, line);
    }
    // U+FFFD itself is text.
    assertEquals((await runParscale(`${FEW} --prompt \ufffd`)).code, 0);
  }));

Deno.test("ids are echoed whatever they are, row numbers count rows", async () => {
  const ids = ["x", undefined, [1, { b: 2 }]];
  const rows = await rowsOf(FEW, { stdin: jsonLines(...ids.map((id) => ({ id, prompt: "a" }))) });
  assertEquals(rows.map(({ id }) => id), ["x", 1, [1, { b: 2 }]]);
});

Deno.test("--echo repeats the prompt, --timings adds times to stats, in any format", async () => {
  const chat = { messages: [{ role: "user", content: "b" }] };
  const stdin = jsonLines({ prompt: "a" }, { tokens: [5, 6] }, chat);
  const line = `generate --model ${CHAT_MODEL} --max-tokens 3`;
  const plain = await rowsOf(line, { stdin });
  const rows = await rowsOf(`${line} --echo --timings`, { stdin });
  const asked = [{ prompt: "a" }, { prompt: [5, 6] }, chat];
  for (const [i, { stats: { ttft_ms, tokens_per_s, ...rest }, ...row }] of rows.entries()) {
    const { tokens_per_step, ...stats } = rest;
    assertEquals({ ...row, stats }, { ...plain[i], ...asked[i] });
    assert(tokens_per_step >= 1 && tokens_per_step <= stats.new_tokens);
    assert(ttft_ms >= 0 && tokens_per_s > 0 && ttft_ms / 1000 * tokens_per_s <= stats.new_tokens);
  }
  const csv = await succeed(`${line} --echo --timings --format csv`, { stdin });
  const [head, first] = csv.split("\n");
  assertEquals(head, "id,prompt,finish_reason,text,error,ttft_ms,tokens_per_s,tokens_per_step");
  assertMatch(first!, /(,[\d.]+){3}$/);
  const text = await succeed(`${line} --prompt 'once '`);
  assertEquals(await succeed(`${line} --prompt 'once ' --echo`), `once ${text}`);
  const echoed = await succeed(`${line} --prompt b --chat --echo`);
  assertStringIncludes(echoed, "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n");
});

Deno.test("a row the model cannot take gets an error, the others continue, exit 1", async () => {
  const stdin = jsonLines({ id: "a", tokens: [512] }, { prompt: "a" }, { prompt: "" });
  const cannot = "cannot continue a prompt:";
  for (const flags of ["", " --num-beams 2", " --temperature 1 --num-return 2"]) {
    const { code, stdout, stderr } = await runParscale(`${FEW} --jsonl${flags}`, { stdin });
    const rows = parseLines(stdout);
    assertEquals([code, stderr, rows.map(({ id }) => id)], [1, "", ["a", 1, 2]]);
    const error = `${cannot} token id 512 at position 0, expected an integer from 0 to 511`;
    assertEquals([rows[0], rows[2].error], [{ id: "a", error }, `${cannot} there are no tokens`]);
    const echoed = await runParscale(`${FEW} --jsonl --echo${flags}`, { stdin });
    assertEquals(parseLines(echoed.stdout)[0], { id: "a", prompt: [512], error });
  }
  const alone = await runParscale(FEW, { stdin: jsonLines({ prompt: "" }) });
  assertRefused(alone, 3, `${cannot} there are no tokens`);
});

Deno.test("flags that change nothing, and more tokens than the context has, are warnings", async () => {
  const idle = "--top-k 5 --top-p 0.9 --min-p 0.1 --length-penalty 2 --early-stopping true";
  const { code, stderr } = await runParscale(`${FEW} --prompt a ${idle}`);
  assertEquals(code, 0);
  const flags = [...stderr.matchAll(/^warning: `(\S+)` has no effect without/gm)];
  assertEquals(flags.map(([, flag]) => flag), idle.match(/--\S+/g));
  assertStringIncludes(stderr, "warning: `--top-k` has no effect without `--temperature`\n");
  assertEquals((await runParscale(`${FEW} --prompt a ${idle} -q`)).stderr, "");

  const long = `${GENERATE} --prompt a --stop e --max-tokens`;
  const warned = await runParscale(`${long} 2048`);
  const warning = "warning: --max-tokens 2048 exceeds what the model's context of 2048";
  assertEquals([warned.code, warned.stderr.startsWith(warning)], [0, true]);
  await succeed(`${long} 2047`);
});

Deno.test("an empty stdin gives an empty result and a warning, a closed one does too", async () => {
  const stderr = "warning: there are no prompts in the input\n";
  assertEquals(await runParscale(`${FEW} --jsonl`), { code: 0, stdout: "", stderr });
  const json = await runParscale(`${FEW} --json`, { stdin: "" });
  assertEquals([json.code, JSON.parse(json.stdout).results], [0, []]);
  const closed = await runShell(`parscale ${FEW} --jsonl <&-; echo $?`);
  assertEquals([closed.stdout, closed.stderr], ["0\n", stderr]);
});

Deno.test("ids need no tokenizer and then have no text", () =>
  withScratch(async (folder) => {
    const model = await copyFolder(MODEL, `${folder}/m`, NO_TOKENIZER);
    const run = `generate --model ${model} --max-tokens 4`;
    const stdin = jsonLines({ tokens: [1, 2] });
    const [[with_], [without]] = [await rowsOf(FEW, { stdin }), await rowsOf(run, { stdin })];
    assertEquals(without, { ...with_, text: null });
    assertEquals((await rowsOf(`${run} --num-beams 2`, { stdin }))[0].text, null);
    assertEquals((await succeed(run, { stdin })).trim().split("\n").length, 2);
  }));

Deno.test("--jsonl answers early rows while stdin is open, in input order", async () => {
  const run = start(`${FEW} --jsonl`);
  const id = async () => JSON.parse(await run.line()).id;
  await run.write(jsonLines({ id: "first", prompt: "a" }));
  assertEquals(await id(), "first");
  await run.write(jsonLines({ id: "second", prompt: "b" }, { id: "third", prompt: "c" }));
  assertEquals([await id(), await id()], ["second", "third"]);
  await run.closeStdin();
  assertEquals([(await run.child.status).code, await run.child.stderr.text()], [0, ""]);
});

Deno.test("the first of many rows is out long before the last is computed", {
  timeout: HANG_MS,
}, async () => {
  const run = start(`${ENDLESS} --batch 2`);
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
  const many = `${rows} | parscale ${FEW} --jsonl`;
  const read = await runShell(`${many} | jq -s 'map(.id) | add'`);
  assertEquals([read.stdout, read.stderr], ["4950\n", ""]);
  const long = `parscale ${GENERATE} --prompt 2+2= --max-tokens 1500 --ignore-eos`;
  for (const gone of [many, long]) {
    const script = `set -o pipefail; ${gone} | head -c 40 | wc -c; echo $?`;
    const { stdout, stderr } = await runShell(script);
    assertEquals([stdout.trim(), stderr], ["40\n0", ""]);
  }
});

Deno.test("-o: a file that is whole or absent, also for plain text; --overwrite replaces", () =>
  withScratch(async (cwd) => {
    const run = (flags: string) => runParscale(`${FEW} --prompt a -o ${flags}`, { cwd });
    assertEquals(await run("out"), { code: 0, stdout: "", stderr: "" });
    const text = await succeed(`${FEW} --prompt a`);
    assertEquals(await Deno.readTextFile(`${cwd}/out`), text);
    assertFailed(await run("out"), 2, "hint: pass --overwrite, or another name");
    assertEquals((await run("out --jsonl --overwrite")).code, 0);
    assertEquals(parseLines(await Deno.readTextFile(`${cwd}/out`)).length, 1);
    assertEquals(names(cwd), ["out"]);
    assertEquals((await run("-")).stdout, text);
  }));

Deno.test("SIGINT and SIGTERM end a long run with 130 and 143, and leave no file", async () => {
  for (const [signal, code] of [["SIGINT", 130], ["SIGTERM", 143]] as const) {
    for (const device of ["cpu", "reference"]) {
      await withScratch(async (cwd) => {
        const run = start(`${ENDLESS} -o out --device ${device}`, cwd);
        await run.write(jsonLines({ tokens: [1] }));
        // The file under its temporary name shows that the run is under way.
        while (names(cwd).length === 0) await new Promise((r) => setTimeout(r, 20));
        await new Promise((resolve) => setTimeout(resolve, 100));
        run.child.kill(signal);
        assertEquals([(await run.child.status).code, names(cwd)], [code, []]);
        await Promise.all([run.child.stderr.cancel(), run.closeStdin().catch(() => {})]);
        await run.line();
      });
    }
  }
});

Deno.test({
  name:
    "a wait for the writer of a pipe ends at a signal; one that is written to is read as a file",
  ignore: Deno.build.os === "windows",
  fn: () =>
    withScratch(async (cwd) => {
      assert((await runShell("mkfifo pipe", { cwd })).code === 0);
      const lines = [
        `convert --model ${PLAIN_MODEL} --streams 2 --out p2 --prefix-text pipe`,
        "fit pipe",
        `${FEW} pipe`,
        `${FEW} pipe --jsonl -o out`,
        `score --model ${MODEL} pipe -o out2`,
        `visualize --model ${MODEL} pipe`,
      ];
      await Promise.all(lines.map(async (line, i) => {
        const [signal, code] = i % 2 ? ["SIGINT", 130] as const : ["SIGTERM", 143] as const;
        const child = parscale(line, { cwd, stdin: "null", stdout: "null", stderr: "null" })
          .spawn();
        await new Promise((resolve) => setTimeout(resolve, 4000)); // it waits by now
        child.kill(signal);
        const late = setTimeout(() => child.kill("SIGKILL"), HANG_MS);
        assertEquals((await child.status).code, code, line);
        clearTimeout(late);
      }));
      assertEquals(names(cwd), ["pipe"]);
      const row = JSON.stringify({ tokens: [1, 2, 3] });
      const script = `(sleep 1; echo '${row}') > pipe & parscale ${FEW} pipe --jsonl`;
      const { code, stdout, stderr } = await runShell(script, { cwd });
      assertEquals([code, parseLines(stdout).length], [0, 1], stderr);
      const listener = Deno.listen({ transport: "unix", path: `${cwd}/socket` });
      const read = await runParscale(`${FEW} socket`, { cwd });
      assertFailed(read, 3, '"socket" is a socket, not a file');
      listener.close();
    }),
});

Deno.test("rows choose an adapter by name or path; others run on the backbone", () =>
  withScratch(async (folder) => {
    const two = await makeAdapter(CHAT_MODEL, 2, `${folder}/two`);
    const four = await makeAdapter(CHAT_MODEL, 4, `${folder}/four`);
    const common = `generate --model ${CHAT_MODEL} --max-tokens 40`, prompt = "The red fox";
    const adapters = ["p2", undefined, four, "p2"];
    const stdin = jsonLines(...adapters.map((adapter) => ({ prompt, adapter })));
    const several = `${common} --adapter p2=${two} --adapter ${four}`;
    const texts = async (line: string, stdin: string) =>
      (await rowsOf(line, { stdin })).map(({ text }) => text);
    const alone = async (flags: string) => (await texts(common + flags, jsonLines({ prompt })))[0];
    const expected = [await alone(` --adapter ${two}`), await alone("")]
      .concat(await alone(` --adapter ${four}`));
    assertEquals(await texts(several, stdin), [...expected, expected[0]]);
    assertEquals(new Set(expected).size, 3);
    const searched = await texts(`${several} --num-beams 2`, stdin);
    assertEquals(searched[0], searched[3]);

    const wrong = await runParscale(several, { stdin: jsonLines({ prompt, adapter: "p8" }) });
    assertFailed(wrong, 3, "line 1 of stdin names no adapter");
    const twice = await runParscale(`${common} --adapter a=${two} --adapter a=${four}`);
    assertEquals(twice.code, 2);
    const [kept] = await texts(common, jsonLines({ prompt, adapter: "any" }));
    assertEquals(kept, expected[1], "without adapters the field means nothing");
  }));

Deno.test("--on-error records rows that cannot be read too, or ends at the first that fails", async () => {
  const cases = [
    [`${GENERATE} --max-tokens 1`, { tokens: [1] }],
    [`score --model ${MODEL}`, { tokens: [1, 2] }],
  ] as const;
  for (const [command, good] of cases) {
    const run = (rows: string, flags: string) =>
      runParscale(`${command} --jsonl ${flags}`, { stdin: rows + jsonLines(good) });
    const failing = jsonLines({ id: "x", tokens: [99999, 1] });
    const bad = `{\n[1]\n{"id":"w"}\n${failing}`;
    const recorded = await run(jsonLines(good) + bad, "--on-error row");
    const rows = parseLines(recorded.stdout).map(({ id, error }) => [id, error !== undefined]);
    const expected = [[0, false], [1, true], [2, true], ["w", true], ["x", true], [5, false]];
    assertEquals([recorded.code, rows], [1, expected]);
    const stopped = await run(failing, "--on-error stop");
    assertEquals(stopped.code, 3);
    assertStringIncludes(stopped.stderr, 'row \\"x\\": cannot ');
  }
  const { stdout } = await runParscale(`generate --model ${CHAT_MODEL} --jsonl --on-error row`, {
    stdin: jsonLines({ messages: 5 }),
  });
  assertStringIncludes(parseLines(stdout)[0].error, "line 1 of stdin: ");
});
