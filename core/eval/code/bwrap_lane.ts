/**
 * The lane of exact CPython: each job in a fresh `python3` under bubblewrap.
 *
 * Comes in: jobs. Goes out: their results. The process sees an empty machine: /usr read-only, an
 * empty folder in memory, no network, no other process, no environment. It can overwrite everything
 * of its own, its answers included, but never learns what the answers should be. Slower than the other
 * lane by a process start a job; it has numpy where the system's Python has it.
 */
import { EnvironmentError } from "../../errors.ts";
import { lines } from "./protocol.ts";
import { RUNNER } from "./runner_text.ts";
import {
  type End,
  type Ending,
  endProcess,
  type Job,
  type Results,
  type Sandbox,
} from "./sandbox.ts";

/** What the lane needs to know. */
export interface BubblewrapOptions {
  /** Processes at once. */
  readonly workers: number;
  /** Address space of each. */
  readonly memoryBytes: number;
}

/** Reads one job, answers each call with a line: seconds and result. */
const MAIN = `
def _main():
    import os, time
    job = json.loads(sys.stdin.readline())
    answer = os.fdopen(os.dup(1), "w", buffering=1)
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    clock = time.perf_counter
    failed = load(job["source"])
    answer.write(json.dumps(["loaded", failed]) + chr(10))
    if failed is not None:
        return
    for text in job["inputs"]:
        begin = clock()
        result = call(job["entryPoint"], job["rule"], text)
        answer.write(json.dumps([clock() - begin, result]) + chr(10))
        if result[0] != "=":
            return
_main()
`;

/** Opens the lane, after trying that it works here. */
export async function openBubblewrap(options: BubblewrapOptions): Promise<Sandbox> {
  const probe = await attempt(command(options, 10, "import sys; print(sys.version.split()[0])"));
  return new BubblewrapLane(options, probe);
}

async function attempt(probe: Deno.Command): Promise<string> {
  const fail = (found: string) =>
    new EnvironmentError(`Cannot open the bubblewrap sandbox: ${found}`, {
      hints: [
        "Install the programs bwrap (package bubblewrap), prlimit (util-linux) and python3.",
        "In a container, allow user namespaces or use the pyodide sandbox.",
      ],
    });
  let process;
  try {
    process = probe.spawn();
  } catch {
    throw fail("no program bwrap");
  }
  await process.stdin.close();
  const { success, stdout, stderr } = await process.output();
  const decoder = new TextDecoder();
  if (!success) throw fail(decoder.decode(stderr).trim().split("\n").at(-1) || "it does not start");
  return decoder.decode(stdout).trim();
}

/** A command that runs Python text in the sandbox. */
function command(options: BubblewrapOptions, seconds: number, python: string): Deno.Command {
  const links = ["bin", "lib", "lib64", "sbin"].flatMap((
    name,
  ) => ["--symlink", `usr/${name}`, `/${name}`]);
  return new Deno.Command("bwrap", {
    args: [
      "--unshare-all",
      "--die-with-parent",
      "--clearenv",
      "--new-session",
      ...["--ro-bind", "/usr", "/usr", ...links],
      ...["--proc", "/proc", "--dev", "/dev"],
      ...["--size", String(64 * 2 ** 20), "--tmpfs", "/tmp", "--chdir", "/tmp"],
      "/usr/bin/prlimit",
      `--as=${options.memoryBytes}`,
      `--cpu=${Math.ceil(seconds) + 1}`,
      "--nproc=256",
      "--core=0",
      ...["/usr/bin/python3", "-I", "-c", python],
    ],
    // Its own environment can be read by what it runs.
    clearEnv: true,
    env: { PATH: Deno.env.get("PATH") ?? "" },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  });
}

class BubblewrapLane implements Sandbox {
  readonly lane = "bwrap";
  readonly pythonVersion: string;
  readonly #options: BubblewrapOptions;
  readonly #waiting: (() => void)[] = [];
  readonly #processes = new Set<Deno.ChildProcess>();
  #free: number;

  constructor(options: BubblewrapOptions, pythonVersion: string) {
    this.#options = options;
    this.#free = options.workers;
    this.pythonVersion = pythonVersion;
  }

  async run(job: Job, onResults: (results: Results) => boolean): Promise<End> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    const process = command(this.#options, job.totalLimit, `${RUNNER}\n${MAIN}`).spawn();
    this.#processes.add(process);
    try {
      return await follow(process, job, onResults);
    } finally {
      endProcess(process);
      await process.status;
      this.#processes.delete(process);
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const processes = [...this.#processes];
    processes.forEach(endProcess);
    await Promise.all(processes.map((process) => process.status));
  }
}

/** Feeds a job to a process and watches its clocks. */
async function follow(
  process: Deno.ChildProcess,
  job: Job,
  onResults: (results: Results) => boolean,
): Promise<End> {
  let ending: Ending | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const after = (seconds: number, what: Ending) =>
    setTimeout(() => {
      ending ??= what;
      endProcess(process);
    }, 1000 * seconds);
  const whole = after(job.totalLimit, "killed");
  const errors = process.stderr.cancel().catch(() => {});
  const feeding = feed(process, job);
  let loaded = false;
  let detail: string | undefined;
  let index = 0;
  try {
    for await (const line of lines(process.stdout)) {
      const [first, text] = parsed(line);
      clearTimeout(timer);
      if (!loaded) {
        loaded = true;
        if (text !== null) return { ending: "load", detail: String(text) };
      } else {
        const results = { first: index++, texts: [String(text)], seconds: [Number(first)] };
        const goOn = onResults(results);
        if (!String(text).startsWith("=")) return { ending: "call" };
        if (!goOn) return { ending: "stopped" };
      }
      if (index === job.inputs.length) return { ending: "done" };
      timer = after(job.limits[index]!, "input_limit");
    }
    detail = "the interpreter ended";
    return ending ? { ending } : { ending: "crashed", detail };
  } finally {
    clearTimeout(timer);
    clearTimeout(whole);
    endProcess(process);
    await Promise.all([errors, feeding]);
  }
}

async function feed(process: Deno.ChildProcess, job: Job): Promise<void> {
  const writer = process.stdin.getWriter();
  try {
    await writer.write(new TextEncoder().encode(`${JSON.stringify(job)}\n`));
    await writer.close();
  } catch {
    // A process that does not listen is found out by its clocks.
  }
}

/** A line of the runner; anything else counts as a failure. */
function parsed(line: string): [unknown, unknown] {
  try {
    const [first, text] = JSON.parse(line);
    return [first, text];
  } catch {
    return [0, "!not an answer"];
  }
}
