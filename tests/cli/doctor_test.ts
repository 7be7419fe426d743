/** `parscale doctor` as a black box: what it finds, and what a failure looks like. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { sheetOf } from "../../core/bringup/stages.ts";
import { documentOf, parseLines } from "./models.ts";
import { runCommand, runParscale } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { ROOT } from "../fixtures.ts";

Deno.test("a healthy machine passes every required check", async () => {
  const { schema, results } = await documentOf("doctor");
  assertEquals(schema, "parscale.doctor/1");
  for (const row of results) {
    assertEquals(Object.keys(row), ["check", "status", "found", "remedy"]);
    assert(["ok", "missing"].includes(row.status), JSON.stringify(row));
    assertEquals(row.status === "ok", row.remedy === null);
  }
  const byName = Object.fromEntries(results.map((row: { check: string }) => [row.check, row]));
  assertEquals(
    Object.keys(byName).join(", "),
    "deno, cores, memory, weight cache, device cpu, cuda libraries, mpi, nccl, device cuda, " +
      "device webgpu, device tfjs",
  );
  assertStringIncludes(byName.deno.found, Deno.version.deno);
  assertStringIncludes(byName["device cpu"].found, "of the reference");
  const { status, found, remedy } = byName["device tfjs"];
  if (status === "ok") assertStringIncludes(found, "TensorFlow");
  else {
    assertStringIncludes(found, "the tfjs device needs the package @tensorflow/tfjs-node-gpu");
    assertStringIncludes(remedy, "npm:@tensorflow/tfjs-node-gpu@4.22.0");
  }
});

Deno.test("a GPU is compared with its own data sheet, never with that of another of a similar name", () => {
  const sheet = (name: string) => sheetOf(name)?.name;
  assertEquals(sheet("NVIDIA A100-SXM4-80GB"), "a100-sxm-80gb");
  assertEquals(sheet("Tesla T4"), "t4-16gb");
  assertEquals([sheet("NVIDIA L40"), sheet("NVIDIA T400 4GB")], [undefined, undefined]);
});

Deno.test("a required check that fails is shown with its remedy and gives 4", () =>
  withScratch(async (folder) => {
    // The same program with two more checks, since this machine passes all of its own.
    const root = ROOT;
    const path = `${folder}/doctor.ts`;
    await Deno.writeTextFile(
      path,
      `import { CHECKS } from "${root}cli/commands/doctor/checks.ts";
       import { main } from "${root}cli/main.ts";
       import { Io, processSystem } from "${root}cli/output/io.ts";
       const broken = { ok: false, found: "no such library", remedy: "run \`deno install\`" };
       CHECKS.push({ name: "broken", required: true, run: () => Promise.resolve(broken) });
       CHECKS.push({ name: "optional", required: false, run: () => Promise.resolve(broken) });
       Deno.exit(await main(["doctor", "--jsonl"], new Io(processSystem())));`,
    );
    const run = [Deno.execPath(), "run", "-A", "--no-check", "--config", `${root}deno.json`];
    const { code, stdout } = await runCommand([...run, path]);
    assertEquals(code, 4);
    const rows = parseLines(stdout).slice(-2);
    assertEquals(rows.map(({ check, status }) => [check, status]), [
      ["broken", "fail"],
      ["optional", "missing"],
    ]);
    assertEquals(rows[0].remedy, "run `deno install`");
  }));

Deno.test("--device cuda without a driver ends at the libraries, with 4 and what to report", async () => {
  const env = { PARSCALE_LIBCUDA: "/nowhere/libcuda.so.1" };
  const { code, stdout } = await runParscale("doctor --device cuda --json", { env });
  assertEquals(code, 4);
  const { schema, results } = JSON.parse(stdout);
  assertEquals([schema, results.length], ["parscale.bring_up/1", 1]);
  const [{ stage, status, found }] = results;
  assertEquals([stage, status], ["libraries", "fail"]);
  assertStringIncludes(found, "cannot load libcuda.so: tried /nowhere/libcuda.so.1");
  const table = await runParscale("doctor --device cuda", { env });
  assertEquals(table.code, 4);
  assertStringIncludes(table.stderr, "please report this table");
  assert(!table.stderr.includes("\x1b"), "lines are redrawn on terminals alone");
  assertEquals((await runParscale("doctor --device cuda -q", { env })).stderr, "");
});
