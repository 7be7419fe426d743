/** Waiting for native code before the process ends. */
import { assertEquals, assertRejects } from "@std/assert";
import { duringNativeCall, nativeCallsOver } from "../../../core/base/native_calls.ts";

Deno.test("nativeCallsOver waits for every call, also one that fails or begins meanwhile", async () => {
  const seen: string[] = [];
  const first = Promise.withResolvers<string>(), second = Promise.withResolvers<string>();
  const call = duringNativeCall(first.promise).then((value) => {
    seen.push(value);
    return assertRejects(() => duringNativeCall(second.promise), Error, "broken");
  });
  const over = nativeCallsOver().then(() => seen.push("over"));
  first.resolve("first");
  await new Promise((resolve) => setTimeout(resolve, 5));
  assertEquals(seen, ["first"]);
  second.reject(new Error("broken"));
  await Promise.all([call, over]);
  assertEquals(seen, ["first", "over"]);
  await nativeCallsOver();
});
