/**
 * 64 clients at once, of which some go away and some send nonsense: no request is lost or overtaken by
 * more than those that came with it, and memory stays flat.
 *
 *     PARSCALE_SOAK_S=120 deno test -A tests/long/serve_soak_test.ts
 *
 * prints the figures of docs/serving.md; without the variable it takes seconds.
 */
import { assert, assertEquals } from "@std/assert";
import { TestServer, until } from "../cli/serve_testing.ts";
import { MODEL } from "../cli/models.ts";
import { Draws } from "./fuzzing.ts";
import { medianOf } from "../../core/base/statistics.ts";

const SECONDS = Number(Deno.env.get("PARSCALE_SOAK_S") ?? 10), CLIENTS = 64;

/** Requests at least, however slow the machine: the memory of fewer still grows to its usual size. */
const REQUESTS = 1500;

/** Later requests of its kind that may end before one: each client may have one under way. */
const OVERTAKEN = CLIENTS;

/** Requests of a kind do the same work. */
interface Kind {
  readonly name: string;
  /** Of a hundred requests. */
  readonly share: number;
  readonly tokens: number;
  readonly stream: boolean;
}

const KINDS: readonly Kind[] = [
  { name: "short, whole", share: 20, tokens: 8, stream: false },
  { name: "short, streamed", share: 20, tokens: 8, stream: true },
  { name: "long, whole", share: 15, tokens: 64, stream: false },
  { name: "long, streamed", share: 15, tokens: 64, stream: true },
];

const MALFORMED: readonly string[] = [
  "{",
  "[]",
  '{"prompt":"x","valueOf":1}',
  '{"prompt":"x","temperature":-1}',
  `{"prompt":"${"x".repeat(100_000)}"}`,
  `{"prompt":"x","stop":[${new Array(5000).fill('"a"').join(",")}]}`,
];

const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length;

/** Open files and MiB of resident memory of a process. */
function measure(pid: number): { files: number; memory: number } {
  const status = Deno.readTextFileSync(`/proc/${pid}/status`);
  const files = [...Deno.readDirSync(`/proc/${pid}/fd`)].length;
  return { files, memory: Number(/^VmRSS:\s+(\d+) kB/m.exec(status)![1]) / 1024 };
}

/** Seconds of processor time so far: of all processes, and of server and clients. */
function processorTime(server: number): { all: number; own: number } {
  const fields = (path: string) => Deno.readTextFileSync(path).split("\n")[0]!.split(/ +/);
  const [, user, nice, system] = fields("/proc/stat").map(Number) as [
    number,
    number,
    number,
    number,
  ];
  const own = [server, Deno.pid].flatMap((pid) => fields(`/proc/${pid}/stat`).slice(13, 15));
  return {
    all: (user + nice + system) / 100,
    own: own.reduce((sum, n) => sum + Number(n), 0) / 100,
  };
}

/** Start of a request, counted in requests, and how many that began later ended before it. */
interface Wait {
  readonly began: number;
  readonly ms: number;
  readonly overtaken: number;
}

/** One server and what its clients saw. */
class Soak {
  readonly waits = new Map<string, Wait[]>();
  readonly lost: string[] = [];
  aborted = 0;
  /** Requests so far that were not to be aborted. */
  count = 0;
  readonly #server: TestServer;
  readonly #draws = new Draws(20261125, "soak");

  constructor(server: TestServer) {
    this.#server = server;
  }

  /** One request of one client. */
  async send(): Promise<void> {
    const at = this.#draws.below(100);
    let share = 0;
    for (const kind of KINDS) if (at < (share += kind.share)) return await this.#complete(kind);
    if (at < 85) return await this.#abort();
    if (at < 95) return await this.#malformed();
    await this.#tokenize();
  }

  #bodyOf({ tokens, stream }: Pick<Kind, "tokens" | "stream">) {
    const prompt = Array.from({ length: 64 }, () => 1 + this.#draws.below(400));
    return { prompt, max_tokens: tokens, stream, ignore_eos: true, seed: this.#draws.below(1e6) };
  }

  async #timed(name: string, work: () => Promise<string>): Promise<void> {
    const began = this.count++, at = performance.now();
    try {
      const problem = await work();
      if (problem !== "") this.lost.push(`${name}: ${problem}`);
    } catch (error) {
      this.lost.push(`${name}: ${error}`);
    }
    const waits = this.waits.get(name) ?? [];
    const overtaken = waits.filter((wait) => wait.began > began).length;
    waits.push({ began, ms: performance.now() - at, overtaken });
    this.waits.set(name, waits);
  }

  #complete(kind: Kind): Promise<void> {
    const body = this.#bodyOf(kind);
    const more = kind.stream ? { stream_options: { include_usage: true } } : {};
    return this.#timed(kind.name, async () => {
      const response = await this.#server.post("/v1/completions", { ...body, ...more });
      const text = await response.text();
      const isWhole = !kind.stream || text.endsWith("data: [DONE]\n\n");
      const isRight = isWhole && text.includes(`"completion_tokens":${kind.tokens}`);
      return response.ok && isRight ? "" : `${response.status} ${text.slice(-300)}`;
    });
  }

  async #abort(): Promise<void> {
    const controller = new AbortController(), { signal } = controller;
    const stream = this.#draws.below(2) === 0;
    const timer = setTimeout(() => controller.abort(), this.#draws.below(400));
    const body = this.#bodyOf({ tokens: 1000, stream });
    await this.#server.post("/v1/completions", body, { signal })
      .then((response) => response.text()).catch(() => this.aborted++);
    clearTimeout(timer);
  }

  #malformed(): Promise<void> {
    const body = this.#draws.pick(MALFORMED);
    return this.#timed("malformed", async () => {
      const response = await this.#server.post("/v1/completions", body);
      const text = await response.text();
      return response.status === 400 ? "" : `${response.status} ${text.slice(0, 300)}`;
    });
  }

  #tokenize(): Promise<void> {
    return this.#timed("tokenize 200 kB", async () => {
      const response = await this.#server.post("/tokenize", { prompt: " ab".repeat(66_667) });
      const { count } = await response.json();
      return count > 60_000 ? "" : `${response.status} ${count}`;
    });
  }
}

Deno.test({
  name:
    `soak: 64 clients for ${SECONDS} s lose no request, are served in order, and leave no memory`,
  ignore: Deno.build.os !== "linux",
  async fn() {
    const args = ["--model", MODEL, "--max-batch", "16", "--prefix-cache", "4MiB"];
    await using server = await TestServer.start([...args, "--max-model-len", "2048"]);
    const { pid } = server.process;
    const soak = new Soak(server), memory: number[] = [];
    const before = measure(pid), began = performance.now(), used = processorTime(pid);
    const watch = setInterval(() => memory.push(measure(pid).memory), 250);
    const end = performance.now() + 1000 * SECONDS;
    await Promise.all(Array.from({ length: CLIENTS }, async () => {
      while (performance.now() < end || soak.count < REQUESTS) await soak.send();
    }));
    clearInterval(watch);
    const elapsed = (performance.now() - began) / 1000, { all, own } = processorTime(pid);
    const [ours, total] = [own - used.own, all - used.all].map((time) => time / elapsed);
    await until(async () => {
      const metrics = await server.metrics();
      return [...metrics].every(([name, value]) => !/num_requests_/.test(name) || value === 0);
    }, "no request runs");
    const after = measure(pid);

    const unfair: string[] = [];
    for (const [name, waits] of soak.waits) {
      const usual = medianOf(waits.map(({ ms }) => ms));
      const longest = Math.max(...waits.map(({ ms }) => ms));
      const overtaken = Math.max(...waits.map((wait) => wait.overtaken));
      const line = `${waits.length} × ${name}: median ${usual.toFixed(0)} ms, longest ` +
        `${longest.toFixed(0)} ms, ${(longest / usual).toFixed(2)}x, overtaken by ${overtaken}`;
      console.log(line);
      if (overtaken > OVERTAKEN) unfair.push(line);
    }
    const quarter = Math.floor(memory.length / 4);
    const early = mean(memory.slice(quarter, 2 * quarter)), late = mean(memory.slice(-quarter));
    console.log(
      `${soak.aborted} aborted; memory ${early.toFixed(0)} MiB in the second quarter, ` +
        `${late.toFixed(0)} MiB in the last; files ${before.files}, ${after.files}; cores used: ` +
        `${ours!.toFixed(2)} by server and clients, ${(total! - ours!).toFixed(2)} by others`,
    );
    assertEquals(soak.lost, []);
    assertEquals(unfair, []);
    assert(late < 1.2 * early + 16, `memory grew from ${early} to ${late} MiB`);
    // The clients' connections are kept alive.
    assert(after.files <= before.files + CLIENTS + 8, `${before.files}, then ${after.files} files`);
    server.process.kill("SIGTERM");
    assertEquals(await server.ended, { code: 0, stderr: "" });
  },
});
