/**
 * `deno task test:release`: every black-box test against what a compiled program holds.
 *
 * Arguments name test files instead, and `--bundle` tests a portable bundle; both take minutes.
 */
import { ROOT } from "../../cli/release/stage.ts";
import { bundledProgram, compiledProgram, runSuite } from "./releases.ts";

/** Tests of parts that they load themselves; no program takes part in them. */
const IN_PROCESS = ["sandbox_attacks_test.ts", "sandbox_canonical_test.ts"];

const scratch = await Deno.makeTempDir({ prefix: "parscale-release-" });
try {
  const bundle = Deno.args.includes("--bundle");
  const named = Deno.args.filter((argument) => argument !== "--bundle");
  const all = [...Deno.readDirSync(`${ROOT}tests/cli`)].map(({ name }) => name)
    .filter((name) => name.endsWith("_test.ts") && !IN_PROCESS.includes(name)).sort();
  const files = named.length > 0 ? named : all.map((name) => `${ROOT}tests/cli/${name}`);
  const program = await (bundle ? bundledProgram : compiledProgram)(scratch);
  Deno.exitCode = await runSuite(program, files, scratch);
} finally {
  await Deno.remove(scratch, { recursive: true });
}
