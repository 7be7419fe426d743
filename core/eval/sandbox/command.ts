/**
 * The command line of a sandbox child: Deno with few permissions, under hard limits of the operating
 * system, and on Linux inside bubblewrap where that works.
 *
 * bubblewrap is a second wall, for a bug in V8: no network, no capabilities, no other process, a
 * read-only view of the system libraries, of Deno and of the interpreter.
 */
import { fileURLToPath } from "node:url";
import { EnvironmentError } from "../../base/errors.ts";
import { PLATFORM } from "../../base/platform/mod.ts";
import { SANDBOX_ARGUMENT } from "./protocol.ts";

/** Isolation of the child process. */
export type Shell = "none" | "bwrap";

/** WebAssembly memory of at most 512 MiB, and no code made from strings. */
const V8_FLAGS = "--disallow-code-generation-from-strings,--wasm-max-mem-pages=8192";

/**
 * Data segments of 2 GiB (V8 does not start with 1), no core files, 64 open files. The second line runs
 * the rest of the command.
 */
const HARD_LIMITS = 'ulimit -d 2097152; ulimit -c 0; ulimit -n 64\nexec "$0" "$@"';

/** Folders of the system that Deno's program needs. */
const SYSTEM = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"];

/** The file that a child starts with, and the folders and files its code is in. */
const ENTRY = new URL("./child.ts", import.meta.url);
const CODE = [".", "../../base/worker_permissions.ts"].map((name) =>
  fileURLToPath(new URL(name, ENTRY))
);

/**
 * The command of a child, with stdin, stdout and stderr piped. It may read its own code and `folder`, and
 * nothing else.
 */
export function childCommand(shell: Shell, folder: string): Deno.Command {
  const read = [...CODE, folder];
  const run = ["run", "--quiet", "--no-prompt", "--no-check", "--no-config", "--no-lock"]
    .concat("--no-remote", "--no-npm", "--unstable-worker-options")
    .concat(`--allow-read=${read.join(",")}`, ENTRY.href);
  const program = [Deno.execPath(), ...(Deno.build.standalone ? [SANDBOX_ARGUMENT] : run)];
  const limited = PLATFORM.shell ? [PLATFORM.shell, "-c", HARD_LIMITS, ...program] : program;
  const [first, ...rest] = shell === "bwrap"
    ? ["bwrap", ...bubblewrapArguments(read), ...limited]
    : limited;
  return new Deno.Command(first!, {
    args: rest,
    clearEnv: true,
    env: environment(shell),
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  });
}

/** Deno's own cache is of use outside bubblewrap only, where it can be read. */
function environment(shell: Shell): Record<string, string> {
  const names = shell === "bwrap" ? ["PATH"] : PLATFORM.childVariables;
  const kept = names.flatMap((name) => {
    const value = Deno.env.get(name);
    return value ? [[name, value] as const] : [];
  });
  return { ...Object.fromEntries(kept), ...OWN_ENVIRONMENT };
}

const OWN_ENVIRONMENT = { DENO_NO_UPDATE_CHECK: "1", DENO_V8_FLAGS: V8_FLAGS, NO_COLOR: "1" };

/** Arguments of bubblewrap before the program; `readable` are paths beside the system's. */
export function bubblewrapArguments(readable: readonly string[]): string[] {
  const bind = (path: string) => ["--ro-bind-try", path, path];
  // Deno wants a cache folder and does without one that cannot be written.
  const variables = Object.entries({ ...OWN_ENVIRONMENT, DENO_DIR: "/nonexistent" });
  return [
    ...["--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"],
    ...["--uid", "65534", "--gid", "65534", "--die-with-parent", "--new-session", "--clearenv"],
    ...variables.flatMap(([name, value]) => ["--setenv", name, value]),
    ...[...SYSTEM, Deno.execPath(), ...readable].flatMap(bind),
    ...["--dev", "/dev", "--proc", "/proc"],
    ...["--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"],
  ];
}

/**
 * Returns whether bubblewrap works here, by running it.
 * @throws {EnvironmentError} when it was asked for by name and does not
 */
export async function chooseShell(wanted: "auto" | Shell): Promise<Shell> {
  if (wanted === "none" || (wanted === "auto" && PLATFORM.name !== "linux")) return "none";
  const problem = await tryBubblewrap();
  if (problem === undefined) return "bwrap";
  if (wanted === "auto") return "none";
  throw new EnvironmentError(`bubblewrap does not work here: ${problem}`, {
    hints: [
      "install the package bubblewrap; in a container, allow user namespaces",
      "`--sandbox pyodide` runs without it",
    ],
  });
}

async function tryBubblewrap(): Promise<string | undefined> {
  try {
    const probe = new Deno.Command("bwrap", {
      args: [...bubblewrapArguments([]), "/bin/sh", "-c", "exit 0"],
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    });
    const { success, stderr } = await probe.output();
    if (success) return undefined;
    const text = new TextDecoder().decode(stderr).trim().split("\n").at(-1);
    return text?.replace(/\p{Cc}/gu, " ").slice(0, 200) || "it does not start";
  } catch {
    return "no program `bwrap`";
  }
}
