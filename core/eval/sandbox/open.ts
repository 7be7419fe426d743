/**
 * Opens the sandbox for model-written code: children that run solutions, and one that never does.
 *
 * References, checks and sanitising run in the trusted child, so that no program can change what others
 * are measured by.
 */
import { fileURLToPath } from "node:url";
import { chooseShell, type Shell } from "./command.ts";
import { Pool } from "./pool.ts";

/** Resident memory at which a child is replaced. An idle one has about 250 MB. */
const RESIDENT_BYTES = 900e6;

export interface SandboxOptions {
  /** Children that run solutions. */
  readonly workers: number;
  /** `auto` takes bubblewrap where it works. */
  readonly shell: "auto" | Shell;
}

/** The two sides of the sandbox. */
export interface Sandboxes extends AsyncDisposable {
  /** Runs model-written programs. */
  readonly solutions: Pool;
  /** Runs reference solutions, checks and the sanitiser only. */
  readonly trusted: Pool;
  readonly shell: Shell;
  /** As `sys.version` begins: `3.14.2`. */
  readonly pythonVersion: string;
}

/**
 * Opens both sides and starts the trusted child.
 * @throws {EnvironmentError} when it does not start, or when bubblewrap was asked for and does not work
 */
export async function openSandboxes(options: SandboxOptions): Promise<Sandboxes> {
  const folder = fileURLToPath(new URL(".", import.meta.resolve("pyodide")));
  const shell = await chooseShell(options.shell);
  const settings = { folder, residentBytes: RESIDENT_BYTES };
  const trusted = new Pool(1, settings, shell);
  const solutions = new Pool(options.workers, settings, shell);
  return {
    solutions,
    trusted,
    shell,
    pythonVersion: await trusted.open(),
    async [Symbol.asyncDispose]() {
      await Promise.all([solutions, trusted].map((pool) => pool[Symbol.asyncDispose]()));
    },
  };
}
