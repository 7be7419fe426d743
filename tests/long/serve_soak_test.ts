/**
 * 64 clients at once, of which some go away and some send nonsense: no request is lost or overtaken by
 * more than those that came with it, and memory stays flat. PARSCALE_SOAK_S is the least time in seconds.
 */
import { assert, assertEquals } from "@std/assert";
import { isIdle, openFiles, TestServer, until } from "../cli/serve_testing.ts";
import { MODEL } from "../cli/models.ts";
import { Draws } from "./fuzzing.ts";
import { residentOf } from "../resident.ts";

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

/** One server and what its clients saw. */
class Soak {
  /** Of each kind the starts of requests that have ended, counted in requests. */
  readonly ended = new Map<string, number[]>();
  readonly lost: string[] = [];
  readonly overtaken: string[] = [];
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

  async #counted(name: string, work: () => Promise<string>): Promise<void> {
    const began = this.count++;
    try {
      const problem = await work();
      if (problem !== "") this.lost.push(`${name}: ${problem}`);
    } catch (error) {
      this.lost.push(`${name}: ${error}`);
    }
    const ended = this.ended.get(name) ?? [];
    const later = ended.filter((other) => other > began).length;
    if (later > OVERTAKEN) this.overtaken.push(`${name}: by ${later}`);
    ended.push(began);
    this.ended.set(name, ended);
  }

  #complete(kind: Kind): Promise<void> {
    const body = this.#bodyOf(kind);
    const more = kind.stream ? { stream_options: { include_usage: true } } : {};
    return this.#counted(kind.name, async () => {
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
      .then((response) => response.text()).catch(() => {});
    clearTimeout(timer);
  }

  #malformed(): Promise<void> {
    const body = this.#draws.pick(MALFORMED);
    return this.#counted("malformed", async () => {
      const response = await this.#server.post("/v1/completions", body);
      const text = await response.text();
      return response.status === 400 ? "" : `${response.status} ${text.slice(0, 300)}`;
    });
  }

  #tokenize(): Promise<void> {
    return this.#counted("tokenize 200 kB", async () => {
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
    const soak = new Soak(server), memory: number[] = [], before = openFiles(pid);
    const watch = setInterval(() => memory.push(residentOf(pid).now / 2 ** 20), 250);
    const end = performance.now() + 1000 * SECONDS;
    await Promise.all(Array.from({ length: CLIENTS }, async () => {
      while (performance.now() < end || soak.count < REQUESTS) await soak.send();
    }));
    clearInterval(watch);
    await until(() => isIdle(server), "no request runs");
    assertEquals([soak.lost, soak.overtaken], [[], []]);
    const quarter = Math.floor(memory.length / 4);
    const early = mean(memory.slice(quarter, 2 * quarter)), late = mean(memory.slice(-quarter));
    assert(late < 1.2 * early + 16, `memory grew from ${early} to ${late} MiB`);
    // The clients' connections are kept alive.
    const after = openFiles(pid);
    assert(after <= before + CLIENTS + 8, `${before}, then ${after} files`);
    server.process.kill("SIGTERM");
    assertEquals(await server.ended, { code: 0, stderr: "" });
  },
});
