/** The handler of the HTTP API without a server. */
import { assertEquals } from "@std/assert";
import { EnvironmentError } from "../../../core/base/errors.ts";
import { createHandler } from "../../../core/serve/handler.ts";
import { Service } from "../../../core/serve/service.ts";

/** The handler of a service without models, whose page is `page`. */
function handlerOf(service: Service, errors: unknown[], page: () => Response) {
  return createHandler(service, {
    access: { apiKey: undefined, isLoopback: false, origins: [] },
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
