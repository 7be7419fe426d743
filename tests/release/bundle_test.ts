/**
 * The portable bundle, unpacked and cut off: an empty network, no HOME, no deno but its own.
 *
 * Packing takes a minute of two processors, so all tests share one bundle.
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { BUNDLE_LIMIT } from "../../cli/release/bundle.ts";
import { platformOf } from "../../cli/release/platforms.ts";
import { filesIn, requireComplete, ROOT } from "../../cli/release/stage.ts";
import { jsonLines, MODEL, rowsOf } from "../cli/models.ts";
import { withScratch } from "../scratch.ts";
import { bundledProgram, emptyNetwork, execute, type Finished, readOnly } from "./releases.ts";

const GENERATE = ["generate", "--model", MODEL, "--prompt", "a cat", "--max-tokens", "6"];

/** A bundle and the folder that holds it and everything its tests write. */
class Bundle {
  readonly root: string;
  readonly #cutOff: readonly string[];

  constructor(readonly scratch: string, readonly program: string, cutOff: readonly string[]) {
    this.root = program.replace(/\/bin\/parscale$/, "");
    this.#cutOff = cutOff;
  }

  /** A new empty folder. */
  folder(): string {
    return Deno.makeTempDirSync({ dir: this.scratch });
  }

  /** Runs it with an environment that has a folder for temporary files and nothing else. */
  run(
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
    { before = this.#cutOff, program = this.program } = {},
  ): Promise<Finished> {
    return execute([...before, program, ...args], { TMPDIR: this.folder(), ...env });
  }

  /** Runs it and expects success and silence on stderr. */
  async output(...args: Parameters<Bundle["run"]>): Promise<string> {
    const { code, stdout, stderr } = await this.run(...args);
    assertEquals([code, stderr], [0, ""]);
    return stdout;
  }

  /** Tokens that the tiny model generates. */
  async tokens(...[env, how]: [Readonly<Record<string, string>>?, { before?: string[] }?]) {
    return JSON.parse(await this.output([...GENERATE, "--jsonl"], env, how)).tokens;
  }
}

async function holdsWhatRuns({ scratch, root }: Bundle): Promise<void> {
  const { size } = await Deno.stat(`${scratch}/bundle.tar.xz`);
  assert(size <= BUNDLE_LIMIT, `${size} bytes`);
  requireComplete([...filesIn(`${root}/app`)], platformOf()!);
  const names = [...Deno.readDirSync(root)].map(({ name }) => name).sort();
  assertEquals(names, ["LICENSE", "README.md", "THIRD_PARTY_NOTICES.md", "app", "bin"]);
  assertStringIncludes(await Deno.readTextFile(`${root}/THIRD_PARTY_NOTICES.md`), "| pyodide | ");
}

async function runsCutOff(bundle: Bundle): Promise<void> {
  assert(/^parscale \d/.test(await bundle.output(["--version"])));
  const checks = JSON.parse(await bundle.output(["doctor", "--json"])).results;
  const cpu = checks.find(({ check }: { check: string }) => check === "device cpu");
  assertEquals(cpu.status, "ok");
  const [{ tokens }] = await rowsOf(GENERATE);
  assertEquals(await bundle.tokens(), tokens);
}

async function runsThroughLinks(bundle: Bundle): Promise<void> {
  const folder = bundle.folder();
  await Deno.symlink(bundle.program, `${folder}/first`);
  await Deno.symlink("first", `${folder}/second`); // relative to where the link lies
  const version = await bundle.output(["--version"]);
  assertEquals(await bundle.output(["--version"], {}, { program: `${folder}/second` }), version);
  const PATH = `${folder}:${Deno.env.get("PATH")}`;
  assertEquals(await bundle.output(["--version"], { PATH }, { program: "second" }), version);
}

/** Worker threads, the child process of the sandbox and Python's files. */
async function runsModelWrittenCode(bundle: Bundle): Promise<void> {
  const samples = `${bundle.folder()}/samples.jsonl`;
  const solution = "def add(x, y):\n    return x + y\n";
  await Deno.writeTextFile(samples, jsonLines({ task_id: "HumanEval/53", solution }));
  const data = `${ROOT}fixtures/eval/data`;
  const score = ["eval", "--tasks", "humaneval", "--data", data, "--ids", "53", "--score", samples];
  const { code, stdout, stderr } = await bundle.run([...score, "--allow-code-execution", "--json"]);
  assertMatch(stderr, /^running programs in the (pyodide|bwrap) sandbox, Python 3\.11\.\d+$/m);
  assertEquals(code, 0);
  const [{ metrics, sandbox }] = JSON.parse(stdout).results.tasks;
  assert(["pyodide", "bwrap"].includes(sandbox), sandbox);
  assertEquals(metrics[0].value, 1);
}

async function startsTogether(bundle: Bundle): Promise<void> {
  const env = { TMPDIR: bundle.folder() };
  const tokens = await Promise.all([1, 2, 3].map(() => bundle.tokens(env)));
  assertEquals(tokens[1], tokens[0]);
  assertEquals(tokens[2], tokens[0]);
}

async function runsReadOnly(bundle: Bundle): Promise<void> {
  const before = await readOnly(bundle.root);
  if (before === undefined) return console.log("no read-only folders can be made here");
  const files = [...filesIn(bundle.root)];
  await bundle.tokens({}, { before });
  // No folder can be made there: everything stays in memory.
  await bundle.tokens({ TMPDIR: "/proc", HOME: "/proc" }, { before });
  assertEquals([...filesIn(bundle.root)], files);
}

async function keepsItsCachePrivate(bundle: Bundle): Promise<void> {
  const { uid } = Deno.statSync(bundle.folder());
  const [TMPDIR, strange, home] = [bundle.folder(), bundle.folder(), bundle.folder()];
  const own = `${TMPDIR}/parscale-${uid}`;
  const version = ["--version"];
  await Deno.symlink(strange, own);
  await bundle.output(version, { TMPDIR }, { before: [] });
  assertEquals([...Deno.readDirSync(strange)], [], "a link that anyone could have put there");
  await Deno.remove(own);
  await bundle.output(version, { TMPDIR }, { before: [] });
  assertEquals(Deno.statSync(own).mode! & 0o777, 0o700);
  await bundle.output(version, { HOME: "/dev/null" }, { before: [] });
  await bundle.output(version, { HOME: home }, { before: [] });
  assert(Deno.statSync(`${home}/.cache/parscale/deno`).isDirectory);
  await bundle.output(version, { HOME: home, PARSCALE_CACHE: `${strange}/named` }, { before: [] });
  assert(Deno.statSync(`${strange}/named/deno`).isDirectory);
}

Deno.test("the portable bundle", (t) =>
  withScratch(async (scratch) => {
    const [program] = await bundledProgram(scratch);
    const bundle = new Bundle(scratch, program!, await emptyNetwork());
    const step = (name: string, check: (bundle: Bundle) => Promise<void>) =>
      t.step(name, () => check(bundle));
    await step("holds one engine, all workers and licences, and is small enough", holdsWhatRuns);
    await step("generates in an empty network what the tree generates", runsCutOff);
    await step("may be called through links", runsThroughLinks);
    await step("runs code of a model in its sandbox", runsModelWrittenCode);
    await step("may be started three times at once with an empty cache", startsTogether);
    await step("runs from a read-only folder, with and without a cache", runsReadOnly);
    await step("keeps its cache where no other user can write", keepsItsCachePrivate);
  }));
