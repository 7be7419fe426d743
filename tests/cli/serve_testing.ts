/** A running `parscale serve` for tests, and the small requests they send. */
import { assert } from "@std/assert";
import { succeed } from "./models.ts";
import { type Line, parscale, wordsOf } from "./run.ts";
import { HANG_MS } from "../hang.ts";
import { FIXTURES } from "../fixtures.ts";

/** A model with one stream, a chat template and a tokenizer. */
export const CHAT_MODEL = `${FIXTURES}models/tiny-qwen2`;

/** Result of a server process. */
export interface Ended {
  readonly code: number;
  /** Without the records of requests, and with notes as text. */
  readonly stderr: string;
}

/** A server on a free port. */
export class TestServer implements AsyncDisposable {
  readonly #ended: Promise<Ended>;
  /** Records of all requests, once the process has ended. */
  // deno-lint-ignore no-explicit-any -- tests look at any field
  readonly log: any[] = [];

  private constructor(
    readonly url: string,
    readonly process: Deno.ChildProcess,
    ended: Promise<Ended>,
  ) {
    this.#ended = ended.then(({ code, stderr }) => {
      const others = stderr.split("\n").flatMap((line) => {
        if (!line.startsWith('{"time"')) return [line];
        const record = JSON.parse(line), { note, warning, hint } = record;
        if (record.method) this.log.push(record);
        else if (note !== undefined) return [note];
        else return [`warning: ${warning}`, ...hint ? [`hint: ${hint}`] : []];
        return [];
      });
      return { code, stderr: others.join("\n") };
    });
  }

  /** Starts a server and waits until it is ready. */
  static async start(
    line: Line,
    env: Record<string, string> = {},
    options: { readonly cwd?: string } = {},
  ): Promise<TestServer> {
    const serve = ["serve", "--port", "0", "--json", "--log-format", "json", ...wordsOf(line)];
    const pipes = { stdin: "null", stdout: "piped", stderr: "piped" } as const;
    const process = parscale(serve, { env, ...options, ...pipes }).spawn();
    const stderr = new Response(process.stderr).text();
    const reader = process.stdout.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    while (!text.includes("\n")) {
      const { value, done } = await reader.read();
      assert(!done, `the server ended: ${done && await stderr}`);
      text += value;
    }
    const ended = (async () => {
      while (!(await reader.read()).done);
      return { code: (await process.status).code, stderr: await stderr };
    })();
    return new TestServer(JSON.parse(text).url, process, ended);
  }

  /** Resolves when the process has ended. */
  get ended(): Promise<Ended> {
    return this.#ended;
  }

  /** Ends the server as an operator does. */
  stop(): Promise<Ended> {
    this.process.kill("SIGTERM");
    return this.#ended;
  }

  get(path: string, headers: Record<string, string> = {}): Promise<Response> {
    return fetch(this.url + path, { headers });
  }

  post(path: string, body: unknown, init: RequestInit = {}): Promise<Response> {
    return fetch(this.url + path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: typeof body === "string" ? body : JSON.stringify(body),
      ...init,
    });
  }

  /** The document of a completion; an error's, too. */
  // deno-lint-ignore no-explicit-any -- tests look at any field
  async complete(body: Record<string, unknown>): Promise<any> {
    return await (await this.post("/v1/completions", body)).json();
  }

  /** The document of a chat; an error's, too. */
  // deno-lint-ignore no-explicit-any -- tests look at any field
  async chat(body: Record<string, unknown>): Promise<any> {
    return await (await this.post("/v1/chat/completions", body)).json();
  }

  /** The frames of a stream without its last, which is checked. */
  // deno-lint-ignore no-explicit-any -- tests look at any field
  async frames(path: string, body: Record<string, unknown>): Promise<any[]> {
    const response = await this.post(path, { ...body, stream: true });
    assert(response.headers.get("content-type")?.startsWith("text/event-stream"));
    const frames = (await response.text()).split("\n\n").filter((frame) => frame !== "");
    assert(frames.pop() === "data: [DONE]");
    return frames.filter((frame) => !frame.startsWith(":")).map((frame) =>
      JSON.parse(frame.replace(/^data: /, ""))
    );
  }

  /** The document of another endpoint. */
  // deno-lint-ignore no-explicit-any -- tests look at any field
  async json(path: string, body?: unknown): Promise<any> {
    return await (await (body === undefined ? this.get(path) : this.post(path, body))).json();
  }

  /** Status of an answer to GET, whose body is dropped. */
  async status(path: string, headers?: Record<string, string>): Promise<number> {
    const { body, status } = await this.get(path, headers);
    await body?.cancel();
    return status;
  }

  /** Values of `/metrics` by name and labels. */
  async metrics(): Promise<Map<string, number>> {
    return parseMetrics(await (await this.get("/metrics")).text());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.process.kill("SIGKILL");
    } catch {
      // It has ended.
    }
    await this.#ended;
  }
}

/** Parses the text format of Prometheus; every sample must belong to a declared metric. */
export function parseMetrics(text: string): Map<string, number> {
  const samples = new Map<string, number>(), types = new Map<string, string>();
  for (const line of text.split("\n").slice(0, -1)) {
    const declared = /^# (HELP|TYPE) (\w+) (.+)$/.exec(line);
    if (declared?.[1] === "TYPE") types.set(declared[2]!, declared[3]!);
    if (declared) continue;
    const sample = /^(\w+)(\{(?:\w+="(?:[^"\\]|\\.)*",?)*\}) (\S+)$/.exec(line);
    assert(sample, `not a sample: ${line}`);
    const [, name, labels, value] = sample as unknown as [string, string, string, string];
    const base = name.replace(/_(bucket|sum|count)$/, "");
    assert(types.has(name) || types.get(base) === "histogram", `undeclared: ${name}`);
    assert(Number.isFinite(Number(value)), line);
    samples.set(name + labels, Number(value));
  }
  return samples;
}

/** Returns whether no request runs or waits. */
export async function isIdle(server: TestServer): Promise<boolean> {
  const metrics = await server.metrics();
  return [...metrics].every(([name, value]) => !/num_requests_/.test(name) || value === 0);
}

/** Number of open files of a process (Linux only). */
export const openFiles = (pid: number): number => [...Deno.readDirSync(`/proc/${pid}/fd`)].length;

/** Waits until a condition holds. */
export async function until(
  condition: () => Promise<boolean>,
  what: string,
  timeoutMs = HANG_MS,
): Promise<void> {
  const end = performance.now() + timeoutMs;
  while (!await condition()) {
    assert(performance.now() < end, `timed out: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Writes an adapter with a number of streams for a backbone. Its streams and it differ visibly from others. */
export async function makeAdapter(backbone: string, streams: number, out: string): Promise<string> {
  await succeed(`convert --model ${backbone} -P ${streams} --introduced-only --out ${out}`);
  const path = `${out}/introduced.safetensors`;
  const file = Deno.readFileSync(path);
  const view = new DataView(file.buffer);
  // Fresh tensors are small, and all f32: the header's length, the header, the elements.
  for (let at = 8 + Number(view.getBigUint64(0, true)); at < file.length; at += 4) {
    view.setFloat32(at, 20 * streams * view.getFloat32(at, true), true);
  }
  Deno.writeFileSync(path, file);
  return out;
}
