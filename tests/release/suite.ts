/**
 * `deno task test:release`: every black-box test against what a compiled program holds.
 *
 * Arguments name test files instead, and `--bundle` tests a portable bundle; both take minutes.
 */
import { ROOT } from "../../cli/release/stage.ts";
import { bundledProgram, compiledProgram, runSuite } from "./releases.ts";

const scratch = await Deno.makeTempDir({ prefix: "parscale-release-" });
try {
  const bundle = Deno.args.includes("--bundle");
  const named = Deno.args.filter((argument) => argument !== "--bundle");
  const all = [...Deno.readDirSync(`${ROOT}tests/cli`)].map(({ name }) => name)
    .filter((name) => name.endsWith("_test.ts")).sort();
  const files = named.length > 0 ? named : all.map((name) => `${ROOT}tests/cli/${name}`);
  const program = await (bundle ? bundledProgram : compiledProgram)(scratch);
  Deno.exitCode = await runSuite(program, files, scratch);
} finally {
  await Deno.remove(scratch, { recursive: true });
}
