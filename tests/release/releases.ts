/**
 * Makes releases for the tests and runs them cut off from this machine.
 *
 * Programs are compiled when DENORT_BIN names a base; else deno runs the tree that would be compiled.
 * Cut off means an empty network where the system allows one, and an environment with nothing in it
 * but what a test gives.
 */
import { platformOf } from "../../cli/release/platforms.ts";
import { ROOT, stage } from "../../cli/release/stage.ts";

/** Result of a finished process. */
export interface Finished {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command line with exactly this environment. */
export async function execute(
  [program, ...args]: readonly string[],
  env: Readonly<Record<string, string>>,
  cwd = "/",
): Promise<Finished> {
  const { code, stdout, stderr } = await new Deno.Command(program!, {
    args,
    env,
    clearEnv: true,
    cwd,
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

/** Runs a release tool of this tree, which must succeed; archives are packed fast, and within the limit too. */
export async function makeRelease(tool: "bundle" | "compile", args: readonly string[]) {
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", `${ROOT}cli/release/${tool}.ts`, ...args],
    env: { NO_COLOR: "1", XZ_OPT: "-1" },
  }).output();
  if (code !== 0) throw new Error(new TextDecoder().decode(stderr));
}

/** A real denort, when DENORT_BIN names one. */
export async function realBase(): Promise<string | undefined> {
  const base = Deno.env.get("DENORT_BIN");
  if (base === undefined) return undefined;
  const { stdout } = await execute([base, "--version"], {});
  return stdout.startsWith("deno ") ? undefined : base;
}

/** Compiles the program into `folder`, or lays out its tree; returns the command line that runs it. */
export async function compiledProgram(folder: string): Promise<string[]> {
  if (await realBase() !== undefined) {
    await makeRelease("compile", ["--out", `${folder}/parscale`]);
    return [`${folder}/parscale`];
  }
  await stage(`${folder}/tree`, platformOf()!);
  const run = ["run", "-A", "--no-remote", "--cached-only", "--no-check"];
  return [Deno.execPath(), ...run, `${folder}/tree/mod.ts`];
}

/** Packs a bundle, unpacks it in `folder` and returns the command line that runs it. */
export async function bundledProgram(folder: string): Promise<string[]> {
  await makeRelease("bundle", ["--out", `${folder}/bundle.tar.xz`]);
  await execute(["tar", "-xf", `${folder}/bundle.tar.xz`, "-C", folder], {
    PATH: Deno.env.get("PATH") ?? "",
  });
  const [unpacked] = [...Deno.readDirSync(folder)].filter(({ isDirectory }) => isDirectory);
  return [`${folder}/${unpacked!.name}/bin/parscale`];
}

/** Returns the words in front of a command line that give it an empty network; none where not allowed. */
export async function emptyNetwork(): Promise<string[]> {
  const inside = 'ip link set lo up 2>/dev/null; exec "$@"';
  const prefix = ["unshare", "-rn", "sh", "-c", inside, "sh"];
  return await works([...prefix, "true"]) ? prefix : [];
}

/** Returns the words in front of a command line that make a folder read-only for it, or undefined. */
export async function readOnly(folder: string): Promise<string[] | undefined> {
  const inside = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"';
  const prefix = ["unshare", "-rmn", "sh", "-c", inside, "sh", folder];
  const refused = ["sh", "-c", '! touch "$1/probe" 2>/dev/null', "sh", folder];
  return await works([...prefix, ...refused]) ? prefix : undefined;
}

async function works(line: readonly string[]): Promise<boolean> {
  try {
    return (await execute(line, { PATH: Deno.env.get("PATH") ?? "" })).code === 0;
  } catch {
    return false;
  }
}

/**
 * Runs black-box tests of `tests/cli` against a program, with an empty home, an empty cache and an
 * empty network, and shows their output as it comes; `filter` chooses tests by name.
 */
export async function runSuite(
  program: readonly string[],
  files: readonly string[],
  scratch: string,
  filter = "",
): Promise<number> {
  const env: Record<string, string> = {
    PATH: Deno.env.get("PATH") ?? "",
    PARSCALE_TEST_PROGRAM: JSON.stringify(program),
  };
  for (
    const [name, folder] of [["HOME", "home"], ["DENO_DIR", "deno"], ["TMPDIR", "tmp"]] as const
  ) {
    await Deno.mkdir(env[name] = `${scratch}/${folder}`);
  }
  const test = [
    "test",
    "-A",
    "--no-check",
    "--no-remote",
    "--cached-only",
    "--node-modules-dir=manual",
    `--filter=${filter}`,
  ];
  const [first, ...rest] = [...await emptyNetwork(), Deno.execPath(), ...test, ...files];
  const child = new Deno.Command(first!, { args: rest, cwd: ROOT, env, clearEnv: true }).spawn();
  return (await child.status).code;
}
