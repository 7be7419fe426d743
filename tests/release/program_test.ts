/**
 * The standalone program: what it carries, and that this is enough to run everything.
 *
 * Without a real denort the program itself cannot be made. Then these tests prove that the tree that
 * is compiled runs; that denort writes it out and starts it, they do not.
 */
import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { PROGRAM_LIMIT } from "../../cli/release/compile.ts";
import { platformOf, TARGET_NAMES } from "../../cli/release/platforms.ts";
import { UNSEEN } from "../../cli/release/shipped_files.ts";
import { filesIn, requireComplete, ROOT, stage } from "../../cli/release/stage.ts";
import { environment } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { compiledProgram, execute, readOnly, realBase, runSuite } from "./releases.ts";

/**
 * Tests by file and the starts of their names. Between them these use every package, every worker,
 * the sandbox, figures, pipes and signals; `deno task test:release` runs all.
 */
const SELECTION: Readonly<Record<string, readonly string[]>> = {
  "cli/convert_test.ts": ["a conversion reports", "--aggregation linear"],
  "cli/cost_test.ts": ["models: a folder", "hardware: flags count", "the figure"],
  "cli/doctor_test.ts": ["a healthy machine"],
  "long/eval_code_test.ts": ["a greedy answer"],
  "cli/generate_test.ts": ["greedy rows", "--json-schema", "messages and --chat"],
  "cli/quantize_test.ts": ["a quantized folder generates"],
  "cli/hub_test.ts": ["a download fills"],
  "cli/train_data_test.ts": ["text is the same", "a plain text file"],
};

/** Room for the base: Deno's documentation puts a program with nothing in it at about 70 MB. */
const BASE_LIMIT = 85e6;

const base = await realBase();

const LINUX = platformOf("x86_64-unknown-linux-gnu")!;

function compile(out: string, env: Record<string, string>, args: readonly string[] = []) {
  const run = [Deno.execPath(), "run", "-A", `${ROOT}cli/release/compile.ts`];
  return execute([...run, "--out", out, ...args], environment(env));
}

Deno.test("the program passes black-box tests cut off", () =>
  withScratch(async (scratch) => {
    const program = await compiledProgram(scratch);
    await startsAsSandbox(program, `${scratch}/tree`);
    const names = Object.values(SELECTION).flat();
    const files = Object.keys(SELECTION).map((file) => `${ROOT}tests/${file}`);
    const texts = files.map((file) => Deno.readTextFileSync(file)).join();
    for (const name of names) assertStringIncludes(texts, `test("${name}`);
    const filter = `/^(${names.map(RegExp.escape).join("|")})/`;
    assertEquals(await runSuite(program, files, scratch, filter), 0);
  }));

/** Stands in for what a compiled program does instead of starting a file of its own. */
async function startsAsSandbox([first, ...rest]: readonly string[], tree: string): Promise<void> {
  if (base) return; // the real one does it when it evaluates code
  const child = new Deno.Command(first!, {
    args: [...rest, "--sandbox-child"],
    stdin: "piped",
    stdout: "piped",
  }).spawn();
  const folder = `${tree}/node_modules/pyodide/`;
  const settings = { folder, memoryBytes: 2 ** 29, token: "token " };
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(JSON.stringify(settings) + "\n"));
  for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
    assertStringIncludes(text, 'token {"type":"ready"');
    await writer.close();
  }
  assertEquals((await child.status).code, 0);
}

function checkListing(paths: readonly string[]): void {
  for (const path of UNSEEN) assert(paths.includes(path), path);
  assertEquals(paths.filter((path) => /\.(so(\.\d+)*|dylib|dll|node)$/.test(path)), [
    "node_modules/onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime.so.1",
  ]);
  const kernels = [...Deno.readDirSync(`${ROOT}kernels/forward`)].map(({ name }) => name);
  for (const name of kernels) assert(paths.includes(`kernels/forward/${name}`), name);
  const folders = new Set(paths.map((path) => path.split("/")[0]));
  assertEquals(
    [...folders].sort(),
    "LICENSE THIRD_PARTY_NOTICES.md cli core deno.json kernels mod.ts node_modules".split(" "),
  );
}

Deno.test({
  name: "a program with a real base starts, then twice at once, and from a read-only folder" +
    (base ? "" : " (skipped: DENORT_BIN names no denort)"),
  ignore: base === undefined,
  fn: () =>
    withScratch(async (scratch) => {
      const [program] = await compiledProgram(scratch);
      const env = { HOME: `${scratch}/home` };
      const doctor = async (...line: string[]) => {
        const { code, stderr } = await execute([...line, "doctor"], env);
        assertEquals([code, stderr], [0, ""]);
      };
      await doctor(program!); // writes its files, for which Deno takes no lock
      await Promise.all([doctor(program!), doctor(program!)]);
      await Deno.mkdir(`${scratch}/locked`);
      await Deno.copyFile(program!, `${scratch}/locked/parscale`);
      const before = await readOnly(`${scratch}/locked`);
      if (before === undefined) return;
      await doctor(...before, `${scratch}/locked/parscale`);
      assert(Deno.statSync(`${scratch}/home/.local/share/parscale`).isDirectory);
    }),
});

Deno.test("every tree is complete and small enough, and has the engine of its target alone", () =>
  withScratch(async (scratch) => {
    for (const target of TARGET_NAMES) {
      const { name, engine } = platformOf(target)!, tree = `${scratch}/${name}`;
      const parts = await stage(tree, platformOf(target)!);
      const paths = [...filesIn(tree)];
      assertEquals(paths.filter((path) => path.includes("/bin/")), [
        `node_modules/onnxruntime-node/bin/napi-v6/${engine}`,
      ]);
      if (target === LINUX.target) {
        const bytes = parts.reduce((sum, part) => sum + part.bytes, 0);
        assert(bytes <= PROGRAM_LIMIT - BASE_LIMIT, `${bytes} bytes of content`);
        checkListing(paths);
        const { unstable } = JSON.parse(await Deno.readTextFile(`${tree}/deno.json`));
        assertEquals(unstable, ["lazy-dynamic-imports", "no-legacy-abort", "worker-options"]);
      }
      await Deno.remove(tree, { recursive: true });
    }
  }));

Deno.test("a release with a part too few or too many is refused", () => {
  const engine = `node_modules/onnxruntime-node/bin/napi-v6/${LINUX.engine}`;
  const whole = [...UNSEEN, engine];
  const refuse = (paths: readonly string[], reason: string) => {
    const { message } = assertThrows(() => requireComplete(paths, LINUX)) as Error;
    assertStringIncludes(message, reason);
  };
  refuse(whole.slice(1), `found no ${UNSEEN[0]}`);
  refuse(whole.slice(0, -1), "found the engines (none), expected linux/x64");
  refuse([...whole, engine.replace("x64", "arm64")], "linux/x64/libonnxruntime.so.1 alone");
  refuse([...whole, "tests/cli/run.ts"], "found tests/cli/run.ts, expected only what runs");
  refuse([...whole, "node_modules/vega/index.d.ts"], "found node_modules/vega/index.d.ts");
});

Deno.test("a failed build says why and leaves the earlier program alone", () =>
  withScratch(async (scratch) => {
    const out = `${scratch}/dist/parscale`;
    await Deno.mkdir(`${scratch}/dist`);
    await Deno.writeTextFile(out, "earlier");
    const missing = await compile(out, { DENORT_BIN: `${scratch}/none` });
    assertEquals(missing.code, 4);
    assertStringIncludes(missing.stderr, `no such file: "${scratch}/none", which DENORT_BIN names`);
    const broken = await compile(out, { DENORT_BIN: "/bin/true" });
    assertEquals(broken.code, 3, broken.stderr);
    assertStringIncludes(broken.stderr, 'error: the program is version "');
    const target = await compile(out, {}, ["--target", "x86_64-apple-darwin"]);
    assertEquals(target.code, 2);
    assertStringIncludes(target.stderr, "did you mean `aarch64-apple-darwin`");
    assertEquals(await Deno.readTextFile(out), "earlier");
    assertEquals([...Deno.readDirSync(`${scratch}/dist`)].map(({ name }) => name), ["parscale"]);
  }));
