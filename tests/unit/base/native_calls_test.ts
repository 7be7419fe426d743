/** Native calls that are under way when the process is to end. */
import { assertEquals, assertRejects } from "@std/assert";
import {
  afterNativeCalls,
  duringNativeCall,
  hasNativeCalls,
} from "../../../core/base/native_calls.ts";

Deno.test("a call counts until it is over, also one that fails, and what waits for all of them comes after", async () => {
  const first = Promise.withResolvers<number>(), second = Promise.withResolvers<never>();
  const calls = [duringNativeCall(first.promise), duringNativeCall(second.promise)];
  const seen: boolean[] = [];
  afterNativeCalls(() => seen.push(hasNativeCalls()));
  first.resolve(3);
  assertEquals([await calls[0], hasNativeCalls(), seen], [3, true, []]);
  second.reject(new Error("broken"));
  await assertRejects(() => calls[1]!, Error, "broken");
  assertEquals([hasNativeCalls(), seen], [false, [false]]);
});

Deno.test("where an action that waited fails, others still act, and an error of the call goes before its own", async () => {
  let acted = 0;
  const broken = Promise.reject(new Error("broken"));
  for (const [end, message] of [[broken, "broken"], [Promise.resolve(), "lost"]] as const) {
    const call = duringNativeCall<void>(end);
    afterNativeCalls(() => {
      throw new Error("lost");
    });
    afterNativeCalls(() => acted++);
    await assertRejects(() => call, Error, message);
  }
  assertEquals([acted, hasNativeCalls()], [2, false]);
});
