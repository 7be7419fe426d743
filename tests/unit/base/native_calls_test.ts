/** Native calls that are under way when the process is to end. */
import { assertEquals, assertRejects } from "@std/assert";
import { duringNativeCall, hasNativeCalls } from "../../../core/base/native_calls.ts";

Deno.test("hasNativeCalls tells of every call until it is over, also of one that fails", async () => {
  const first = Promise.withResolvers<number>(), second = Promise.withResolvers<never>();
  const calls = [duringNativeCall(first.promise), duringNativeCall(second.promise)];
  first.resolve(3);
  assertEquals([await calls[0], hasNativeCalls()], [3, true]);
  second.reject(new Error("broken"));
  await assertRejects(() => calls[1]!, Error, "broken");
  assertEquals(hasNativeCalls(), false);
});
