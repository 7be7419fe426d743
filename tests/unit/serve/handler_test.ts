/** The handler of the HTTP API without a server. */
import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { EnvironmentError } from "../../../core/base/errors.ts";
import { listen } from "../../../cli/commands/serve/listen.ts";
import { createHandler } from "../../../core/serve/handler.ts";
import { Service } from "../../../core/serve/service.ts";

/** The handler of a service without models, whose page is `page`. */
function handlerOf(service: Service, errors: unknown[], page: () => Response, isLoopback = false) {
  return createHandler(service, {
    access: { apiKey: undefined, isLoopback, origins: [] },
    device: () => "",
    page,
    onError: (error) => errors.push(error),
  });
}

const OPTIONS = {
  maxBatch: 1,
  maxQueue: 1,
  prefixCacheBytes: 0,
  targets: { tpotMs: 80, ttftMs: 2000 },
};

Deno.test("a 500 is reported with its cause, and its details stay with the server", async () => {
  const errors: unknown[] = [];
  const cause = new Error("the driver has gone");
  const failures = [new EnvironmentError("no device", { cause }), new TypeError("x", { cause })];
  for (const failure of failures) {
    using service = new Service(OPTIONS);
    const handler = handlerOf(service, errors, () => {
      throw failure;
    });
    const response = await handler(new Request("http://localhost/"));
    const { error } = await response.json();
    const message = failure instanceof EnvironmentError ? "no device" : "internal error";
    assertEquals([response.status, error.message], [500, message]);
  }
  assertEquals(errors, failures);
});

Deno.test("a chunked body is read up to its limit, and refused beyond it", async () => {
  using service = new Service(OPTIONS);
  service.open([]);
  const errors: unknown[] = [];
  const handler = handlerOf(service, errors, () => new Response());
  const statusOf = async (bytes: number) => {
    let left = bytes;
    const body = new ReadableStream({
      pull(controller) {
        if (left === 0) return controller.close();
        const part = Math.min(left, 1 << 20);
        left -= part;
        controller.enqueue(new Uint8Array(part).fill(0x20));
      },
    });
    const request = new Request("http://localhost/v1/completions", { method: "POST", body });
    return (await handler(request)).status;
  };
  // What was read is refused, since there is no model.
  assertEquals([await statusOf(8 << 20), await statusOf((8 << 20) + 1)], [404, 413]);
  assertEquals(errors, []);
});

Deno.test("HTTP/1.0 needs no Host, an absolute request target names its own, and bodies are UTF-8", async () => {
  using service = new Service(OPTIONS);
  service.open([]);
  const errors: unknown[] = [];
  const handler = handlerOf(service, errors, () => new Response(), true);
  const server = await listen({ host: "127.0.0.1", port: 0 }, handler);
  const post = (body: string) =>
    `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const rows: [request: string, status: number, words?: string][] = [
    ["GET /health HTTP/1.0\r\n\r\n", 200], // as HAProxy asks
    ["HEAD /health HTTP/1.0\r\n\r\n", 200],
    ["GET /health HTTP/1.0\r\nHost: evil.example\r\n\r\n", 403],
    ["GET http://localhost:8000/health HTTP/1.1\r\nHost: localhost:8000\r\n\r\n", 200],
    ["GET HTTP://127.0.0.1/health?x=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 200],
    ["GET http://localhost/health HTTP/1.0\r\n\r\n", 200],
    ["GET http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n", 200],
    ["GET http://localhost/none HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "no such path: /none;"],
    // The target counts, and not the header (RFC 9112, 3.2.2).
    ["GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 403],
    ["GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403],
    [post('{"prompt": "caf\xe9 x"}'), 400, "the request body is not UTF-8 text"],
    [post("\xff\xfe{\0}\0"), 400, "the request body is not UTF-8 text"], // UTF-16
    [post('{"prompt": "\xed\xa0\x80"}'), 400, "the request body is not UTF-8 text"], // a surrogate
    [post('\xef\xbb\xbf{"prompt": "caf\xc3\xa9"}'), 404], // a byte order mark; there is no model
  ];
  for (const [request, status, words = ""] of rows) {
    using connection = await Deno.connect({ port: server.port });
    await connection.write(Uint8Array.from(request, (character) => character.charCodeAt(0)));
    const answer = new Uint8Array(4096), length = await connection.read(answer);
    const text = new TextDecoder().decode(answer.subarray(0, length ?? 0));
    assertMatch(text, new RegExp(`^HTTP/1\\.[01] ${status} `), request);
    assertStringIncludes(text, words);
  }
  await server.close();
  assertEquals(errors, []);
});
