/** The process that runs the command lines of this test file; see `host.ts`. */
import { fileURLToPath } from "node:url";

/** One command line. */
export interface HostRequest {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly stdin: string;
}

/** Result of a finished command line. */
export interface RunResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

const HOST = fileURLToPath(new URL("host.ts", import.meta.url));

/** Runs command lines, in the order in which they are asked for. */
export class Host {
  readonly #input: WritableStreamDefaultWriter<Uint8Array>;
  readonly #output: ReadableStreamDefaultReader<string>;
  #rest = "";
  #last: Promise<unknown> = Promise.resolve();

  /** Starts the process; outside of tests, which must end what they begin. */
  constructor(env: Readonly<Record<string, string>>, permissions: readonly string[] = ["-A"]) {
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", ...permissions, "--node-modules-dir=manual", HOST],
      env: { ...env },
      clearEnv: true,
      stdin: "piped",
      stdout: "piped",
      stderr: "null",
    }).spawn();
    this.#input = child.stdin.getWriter();
    this.#output = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  }

  run(request: HostRequest): Promise<RunResult> {
    const result = this.#last.then(async () => {
      await this.#input.write(new TextEncoder().encode(`${JSON.stringify(request)}\n`));
      return JSON.parse(await this.#line()) as RunResult;
    });
    this.#last = result.catch(() => {});
    return result;
  }

  async #line(): Promise<string> {
    for (;;) {
      const end = this.#rest.indexOf("\n");
      if (end >= 0) {
        const line = this.#rest.slice(0, end);
        this.#rest = this.#rest.slice(end + 1);
        return line;
      }
      const { value, done } = await this.#output.read();
      if (done) throw new Error("the host of the command lines has ended");
      this.#rest += value;
    }
  }
}
