/**
 * Runs the program as a user does: streams, a scratch folder and an environment of its own.
 *
 * Command lines of a test file share a process, `host.ts`, as starting one takes most of the time of a
 * small command; `runProcess` and `parscale` start their own.
 *
 * Variables that change output (`NO_COLOR`, `CI`, `PARSCALE_*`) are absent unless given, so that
 * results do not depend on who runs the tests.
 */
import { withScratch } from "../scratch.ts";
import { Host, type RunResult } from "./host_client.ts";
import { ROOT } from "../fixtures.ts";

/** Options of a run. */
export interface RunOptions {
  /** Text for stdin; without it stdin is empty, never a terminal. */
  readonly stdin?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Working folder; a new one that is removed afterwards when absent. */
  readonly cwd?: string;
}

export type { RunResult };

/** A command line: its words, or a text with blanks between them and around quoted words. */
export type Line = string | readonly string[];

/** Words of a line; single quotes hold one together. */
export function wordsOf(line: Line): readonly string[] {
  if (typeof line !== "string") return line;
  return Array.from(line.matchAll(/'([^']*)'|\S+/g), ([word, quoted]) => quoted ?? word);
}

/** The entry point under test. */
export const ENTRY = `${ROOT}mod.ts`;

/**
 * The command line that runs the program under test: from this tree, or what PARSCALE_TEST_PROGRAM
 * says as a JSON array, which is how releases are tested. Processes that begin together would
 * otherwise wait for each other to look at node_modules, and say so on stderr.
 */
const PROGRAM: readonly string[] = JSON.parse(Deno.env.get("PARSCALE_TEST_PROGRAM") ?? "null") ??
  [Deno.execPath(), "run", "-A", "--node-modules-dir=manual", ENTRY];

/** Only what the runtime itself and drivers need. */
const INHERITED = ["PATH", "HOME", "DENO_DIR", "TMPDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH"]
  .concat("VK_ICD_FILENAMES");

/** The environment of a run: the inherited minimum, then what the test asks for. */
export function environment(extra: Readonly<Record<string, string>> = {}): Record<string, string> {
  const inherited = INHERITED.flatMap((name) => {
    const value = Deno.env.get(name);
    return value === undefined ? [] : [[name, value]];
  });
  return { ...Object.fromEntries(inherited), ...extra };
}

/** Started with the file, since a test must end what it begins; releases are tested as processes. */
const host = Deno.env.get("PARSCALE_TEST_PROGRAM") || !Deno.mainModule.endsWith("_test.ts")
  ? undefined
  : new Host(environment());

/** The program with a line, in the environment of the tests; for those that do more than run it. */
export function parscale(line: Line, { env, ...options }: Deno.CommandOptions = {}): Deno.Command {
  const [program, ...first] = PROGRAM;
  return new Deno.Command(program!, {
    args: [...first, ...wordsOf(line)],
    env: environment(env),
    clearEnv: true,
    ...options,
  });
}

/** Returns whether a program of this name is on the path. */
export const isInstalled = (program: string): boolean =>
  new Deno.Command("bash", { args: ["-c", `type -P '${program}'`], stdout: "null" }).outputSync()
    .success;

/** The words that run the program with `args`, for launchers and other programs. */
export function programLine(args: readonly string[]): string[] {
  return [...PROGRAM, ...args];
}

/** Runs a command line to its end in the environment of the tests. */
export async function runCommand(
  [program, ...args]: readonly string[],
  options: RunOptions = {},
): Promise<RunResult> {
  const run = async (cwd: string) => {
    const child = new Deno.Command(program!, {
      args,
      cwd,
      env: environment(options.env),
      clearEnv: true,
      stdin: options.stdin === undefined ? "null" : "piped",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    const fed = options.stdin === undefined ? undefined : feed(child.stdin, options.stdin);
    const { code, stdout, stderr } = await child.output();
    await fed;
    const decoder = new TextDecoder();
    return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
  };
  return options.cwd === undefined ? await withScratch(run) : await run(options.cwd);
}

/** Writes all of stdin; a program that stops reading early is not the writer's problem. */
async function feed(stdin: WritableStream<Uint8Array>, text: string): Promise<void> {
  try {
    const writer = stdin.getWriter();
    await writer.write(new TextEncoder().encode(text));
    await writer.close();
  } catch (error) {
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
  }
}

/** Runs a line of `parscale` to its end, in a process of its own. */
export function runProcess(line: Line, options: RunOptions = {}): Promise<RunResult> {
  return runCommand(programLine(wordsOf(line)), options);
}

/** Runs a line of `parscale` to its end, in the process of this file's command lines. */
export async function runParscale(line: Line, options: RunOptions = {}): Promise<RunResult> {
  const args = wordsOf(line);
  if (!host) return await runProcess(args, options);
  const { stdin = "", cwd } = options, env = environment(options.env);
  const run = (cwd: string) => host.run({ args, env, cwd, stdin });
  return cwd === undefined ? await withScratch(run) : await run(cwd);
}

/** Words that run a bash script in which `parscale` is the program under test. */
export function shellWords(script: string): string[] {
  const words = PROGRAM.map((word) => `'${word}'`).join(" ");
  return ["bash", "-c", `parscale() { ${words} "$@"; }\n${script}`];
}

/** Runs a bash script in which `parscale` is the program under test; for pipelines. */
export function runShell(script: string, options: RunOptions = {}): Promise<RunResult> {
  return runCommand(shellWords(script), options);
}
