/** `parscale doctor`: what works on this machine, and what to do where it does not. */
import { defineCommand } from "./define.ts";

export const command = defineCommand({
  name: "doctor",
  summary: "Check what works on this machine",
  description:
    "Runs every check and shows what was found, with a remedy where something is missing. A " +
    "required check that fails gives exit code 4. Nothing is written and nothing leaves the " +
    "machine.",
  examples: [
    { text: "Check everything", line: "parscale doctor" },
    {
      text: "List failures for a script",
      line: `parscale doctor --json | jq -e '.results[]|select(.status=="fail")'`,
    },
  ],
  flags: {},
  async run(_values, io, invocation) {
    const { CHECKS } = await import("../doctor_checks.ts");
    const { openReport } = await import("../output/report.ts");
    using report = openReport(io, invocation, {
      schema: "parscale.doctor/1",
      columns: ["check", "status", "found", "remedy"].map((key) => ({ key })),
    });
    let failed = false;
    for (const check of CHECKS) {
      const { ok, found, remedy } = await check.run();
      failed ||= !ok && check.required;
      const status = ok ? "ok" : check.required ? "fail" : "missing";
      report.row({ check: check.name, status, found, remedy: ok ? null : remedy ?? null });
    }
    await report.finish();
    return failed ? 4 : 0;
  },
});
