/**
 * The script for machines with a GPU, tried on the emulator: that it runs, not how fast. Its bring-up, which
 * `tests/device/cuda/bring_up_test.ts` runs too, is left to `PARSCALE_LONG_TESTS=1`.
 */
import { fileURLToPath } from "node:url";
import { assert, assertEquals } from "@std/assert";
import { emulatorPresent } from "../emulator/mod.ts";

const IN_FULL = Deno.env.get("PARSCALE_LONG_TESTS") === "1";

Deno.test({
  name: "the GPU script brings a machine up and times every kind of work",
  ignore: !emulatorPresent(),
  async fn() {
    const out = await Deno.makeTempFile({ suffix: ".json" });
    const script = fileURLToPath(new URL("../gpu/run.ts", import.meta.url));
    const args = ["run", "-A", "--no-check", script, "--emulated", "--streams", "2", "--out", out];
    const { code, stdout } = await new Deno.Command(Deno.execPath(), {
      args: [...args, "--skip", IN_FULL ? "conformance" : "bring-up,conformance"],
      stderr: "null",
    }).output();
    assertEquals(code, 0, new TextDecoder().decode(stdout));
    const report = JSON.parse(await Deno.readTextFile(out));
    await Deno.remove(out);
    assertEquals([report.emulated, report.failures], [true, []]);
    assert(report.stages.every(({ ok }: { ok: boolean }) => ok));
    assertEquals(report.stages.at(-1)?.stage, IN_FULL ? "rates" : undefined);
    assertEquals(report.findings.length, 1); // a step of training on one rank
    const kinds = report.timings.map(({ what }: { what: string }) => what);
    assertEquals(kinds, ["decode", "prefill", "peft", "train"]);
    for (const { ms, share } of report.timings) assert(ms > 0 && share > 0);
  },
});
