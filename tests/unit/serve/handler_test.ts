/** The handler of the HTTP API without a server. */
import { assertEquals } from "@std/assert";
import { EnvironmentError } from "../../../core/base/errors.ts";
import { createHandler } from "../../../core/serve/handler.ts";
import { Service } from "../../../core/serve/service.ts";

Deno.test("a 500 is reported with its cause, and its details stay with the server", async () => {
  const errors: unknown[] = [];
  const cause = new Error("the driver has gone");
  const failures = [new EnvironmentError("no device", { cause }), new TypeError("x", { cause })];
  for (const failure of failures) {
    using service = new Service({ maxBatch: 1, maxQueue: 1, prefixCacheBytes: 0 });
    const handler = createHandler(service, {
      access: { apiKey: undefined, isLoopback: false, origins: [] },
      device: () => "",
      page() {
        throw failure;
      },
      onUnknownField() {},
      onError: (error) => errors.push(error),
    });
    const response = await handler(new Request("http://localhost/"));
    const { error } = await response.json();
    const message = failure instanceof EnvironmentError ? "no device" : "internal error";
    assertEquals([response.status, error.message], [500, message]);
  }
  assertEquals(errors, failures);
});
