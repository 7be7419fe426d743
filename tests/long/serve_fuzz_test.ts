/**
 * Eight thousand requests, twenty thousand with `PARSCALE_LONG_TESTS=1`, to one server with fields, paths
 * and headers that no client means: each is answered with 2xx, 4xx or 503, and memory and open files return
 * to where they were.
 */
import { assert, assertEquals } from "@std/assert";
import { CHAT_MODEL, isIdle, openFiles, TestServer, until } from "../cli/serve_testing.ts";
import { residentOf } from "../resident.ts";
import { Draws, FRACTION } from "./fuzzing.ts";

const REQUESTS = 20_000 * FRACTION, CLIENTS = 16;

/** Requests before the first measurement: tables, caches and code have their size then. */
const WARM = REQUESTS / 2;

/** Every field that docs and contract name. */
const FIELDS = [
  ...["model", "prompt", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p"],
  ...["top_k", "min_p", "n", "stop", "seed", "echo", "logprobs", "top_logprobs", "stream"],
  ...["stream_options", "ignore_eos", "parscale", "user", "metadata", "store", "service_tier"],
  ...["prompt_cache_key", "parallel_tool_calls", "presence_penalty", "frequency_penalty"],
  ...["repetition_penalty", "logit_bias", "best_of", "suffix", "tools", "tool_choice"],
  ...["response_format", "use_beam_search", "tokens", "add_special_tokens"],
];

const INHERITED = [...Object.getOwnPropertyNames(Object.prototype), "length", "then", "toJSON"];

const PATHS = ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"];

const NUMBERS = ["0", "-0", "-1", "1", "1.5", "2147483648", "9007199254740993", "1e-320", "1e400"];

const NAMES = [
  "%E0%A4%A",
  "%",
  "%00",
  "%2e%2e",
  "..",
  "\u{1f600}",
  "tiny-qwen2",
  "__proto__",
  "a b",
];

const repeat = (draws: Draws, part: string, limit: number) =>
  new Array(draws.below(limit)).fill(part).join(",");

/** JSON of any value, mostly small. */
function valueOf(draws: Draws, depth = 0): string {
  const kind = draws.below(depth > 3 ? 8 : 14);
  const nested = () => valueOf(draws, depth + 1);
  if (kind < 2) return draws.pick(["null", "true", "false"]);
  if (kind < 4) return draws.pick(NUMBERS);
  if (kind < 6) {
    return JSON.stringify(draws.pick(["", "a", "\0", "\ud800", "user", "é".repeat(99)]));
  }
  if (kind < 7) return `[${repeat(draws, draws.pick(["9", '"a"', "[9]", "null", "-1"]), 3000)}]`;
  if (kind < 8) return draws.pick(["[", "{"]).repeat(draws.below(200));
  if (kind < 9) return `${"[".repeat(draws.below(80))}${"]".repeat(draws.below(80))}`;
  if (kind < 11) return `[${Array.from({ length: draws.below(4) }, nested).join(",")}]`;
  const names = [...FIELDS, ...INHERITED, "role", "content", "type", "text", "include_usage"];
  const members = Array.from(
    { length: draws.below(4) },
    () => `${JSON.stringify(draws.pick([...names, "streams", "weights"]))}:${nested()}`,
  );
  return `{${members.join(",")}}`;
}

/** A body that is right but for a few fields. */
function bodyOf(draws: Draws, path: string): string {
  const right = path === "/v1/chat/completions"
    ? `"messages":[{"role":"user","content":"hi"}],"max_tokens":1`
    : path === "/detokenize"
    ? `"tokens":[1,2]`
    : path === "/tokenize"
    ? `"prompt":"hi"`
    : `"prompt":"hi","max_tokens":1`;
  const members = Array.from({ length: draws.below(4) }, () => {
    const name = draws.below(4) === 0 ? draws.pick(INHERITED) : draws.pick(FIELDS);
    return `${JSON.stringify(name)}:${valueOf(draws)}`;
  });
  // What a field would make of the rest of the context takes time and finds nothing.
  const limits = path === "/v1/chat/completions"
    ? [`"max_completion_tokens":2`]
    : path === "/v1/completions"
    ? [`"max_tokens":2`]
    : [];
  const body = `{${[right, ...members, ...limits].join(",")}}`;
  if (draws.below(12) > 0) return body;
  const at = draws.below(body.length);
  return body.slice(0, at) + draws.pick(["", "\0", "}", '"', "\\u12"]) + body.slice(at + 1);
}

function requestOf(draws: Draws): [path: string, init: RequestInit] {
  const kind = draws.below(20);
  if (kind === 0) return [`/v1/models/${draws.pick(NAMES)}`, {}];
  if (kind === 1) {
    return [`/${draws.pick([...INHERITED, ...NAMES])}`, { method: draws.pick(["GET", "POST"]) }];
  }
  const path = draws.pick(PATHS);
  if (kind === 2) return [path, { method: draws.pick(["GET", "PUT", "DELETE", "HEAD", "PATCH"]) }];
  const text = bodyOf(draws, path);
  // Bytes that are not UTF-8 where text was.
  const bytes = new TextEncoder().encode(text);
  if (kind === 3) bytes[draws.below(bytes.length)] = 0xff;
  const body = kind === 4 ? new Blob([bytes]).stream() : bytes;
  const headers = { "content-type": draws.pick(["application/json", "text/plain"]) };
  return [path, { method: "POST", headers, body }];
}

Deno.test({
  name: "fuzz: requests get 2xx, 4xx or 503, and leave no memory and no files",
  ignore: Deno.build.os !== "linux",
  async fn() {
    await using server = await TestServer.start([
      ...["--model", CHAT_MODEL, "--max-model-len", "256"],
      "--prefix-cache",
      "1MiB",
    ]);
    const { pid } = server.process;
    const draws = new Draws(20261124, "serve"), wrong: string[] = [];
    const statuses = new Map<number, number>();
    const send = async (count: number) => {
      let left = count;
      await Promise.all(Array.from({ length: CLIENTS }, async () => {
        while (left-- > 0) {
          const [path, init] = requestOf(draws);
          const sent = init.body instanceof Uint8Array ? new TextDecoder().decode(init.body) : "";
          const response = await fetch(server.url + path, init);
          const { status } = response;
          statuses.set(status, (statuses.get(status) ?? 0) + 1);
          const text = await response.text();
          const isLate = status === 200 && text.includes('"type":"server_error"');
          const isRight = status < 500 || status === 503;
          if (!isRight || isLate) {
            wrong.push(`${init.method ?? "GET"} ${path} ${sent.slice(0, 300)}: ${status} ${text}`);
          }
        }
      }));
    };
    await send(WARM);
    await until(() => isIdle(server), "no request runs");
    const before = { files: openFiles(pid), bytes: residentOf(pid).now };
    await send(REQUESTS - WARM);
    await until(() => isIdle(server), "no request runs");
    const after = { files: openFiles(pid), bytes: residentOf(pid).now };
    assertEquals(wrong, [], wrong.slice(0, 5).join("\n"));
    const often = [200, 400].every((status) => statuses.get(status)! > REQUESTS / 10);
    assert(often, `${[...statuses]}`);
    assert(after.files <= before.files + CLIENTS, `${before.files}, then ${after.files} files`);
    const growth = after.bytes - before.bytes;
    assert(growth < 100e6, `${before.bytes}, then ${after.bytes} bytes`);
    console.log(
      `${[...statuses].sort()}; files ${before.files}, ${after.files}; ${growth} bytes more`,
    );
    server.process.kill("SIGTERM");
    const { stderr } = await server.ended;
    const lines = stderr.split("\n").filter((line) => /error|Error/.test(line));
    assertEquals(lines, []);
  },
});
