/** States of processes, as far as the system says. */
import { assertEquals } from "@std/assert";
import { PLATFORM, platformFor, processState } from "../../../../core/base/platform/mod.ts";

Deno.test("the state of a process follows its name, whatever that is", () => {
  const of = (stat: string | undefined) =>
    platformFor("linux").processState(7, (path) => path === "/proc/7/stat" ? stat : undefined);
  assertEquals(of("7 (deno) S 1 7 7 0"), "running");
  assertEquals(of("7 (a) T (b) R 1 7 7 0"), "running");
  assertEquals(of("7 (deno) T 1 7 7 0"), "stopped");
  assertEquals(of("7 (deno) Z 1 7 7 0"), "gone");
  assertEquals(of(undefined), undefined);
  assertEquals(platformFor("windows").processState(7, () => "7 (deno) T 1"), undefined);
});

Deno.test(
  "a process runs, is stopped by a signal, and ends",
  { ignore: PLATFORM.name !== "linux" },
  async () => {
    const child = new Deno.Command("sleep", { args: ["60"] }).spawn();
    const becomes = async (state: string) => {
      for (let i = 0; i < 100 && processState(child.pid) !== state; i++) {
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      assertEquals(processState(child.pid), state);
    };
    await becomes("running");
    child.kill("SIGSTOP");
    await becomes("stopped");
    child.kill("SIGKILL");
    await becomes("gone");
    await child.status;
    assertEquals(processState(child.pid), "gone");
  },
);
