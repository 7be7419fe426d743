/** `deno task setup`: the command that runs a clone. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { VERSION } from "../../core/base/version.ts";
import { ROOT } from "../../cli/release/stage.ts";
import { MODEL } from "./models.ts";
import { environment, runCommand } from "./run.ts";
import { withScratch } from "../scratch.ts";

const SETUP = [
  Deno.execPath(),
  "run",
  "-A",
  "--node-modules-dir=manual",
  `${ROOT}cli/release/setup.ts`,
];

Deno.test({
  name: "setup leaves a launcher in ~/.local/bin that works in scripts and from any folder",
  ignore: Deno.build.os === "windows",
  fn: () =>
    withScratch(async (home) => {
      const env = { HOME: home, DENO_DIR: `${home}/deno` };
      const made = await runCommand(SETUP, { env });
      const path = `${await Deno.realPath(home)}/.local/bin/parscale`;
      assertEquals([made.code, made.stderr], [0, ""]);
      assertEquals(
        made.stdout,
        `parscale is ${path}\nput it on the PATH: export PATH="${home}/.local/bin:$PATH"\n`,
      );
      const launcher = await Deno.readTextFile(path);
      assertStringIncludes(launcher, "export DENO_NO_UPDATE_CHECK=1\n");
      assertStringIncludes(launcher, `deno='${Deno.execPath()}'\n`);

      const onPath = { ...env, PATH: `${home}/.local/bin:${environment().PATH}` };
      const script = async (text: string) => await runCommand(["sh", "-c", text], { env: onPath });
      assertEquals((await script("parscale --version")).stdout, `parscale ${VERSION}\n`);
      const generated = await script(`parscale generate '${MODEL}' 'a  b' --max-tokens 4 --jsonl`);
      assertEquals(generated.code, 0, generated.stderr);
      assertEquals(JSON.parse(generated.stdout).tokens.length, 4);
      assertEquals((await script("parscale genrate")).code, 2);
      assertEquals((await runCommand(SETUP, { env: onPath })).stdout, `parscale is ${path}\n`);
    }),
});

Deno.test("setup replaces no other program without --overwrite", () =>
  withScratch(async (home) => {
    await Deno.writeTextFile(`${home}/parscale`, "another");
    const { code, stderr } = await runCommand([...SETUP, "--folder", home], {});
    assertEquals(code, 2);
    assertStringIncludes(stderr, "already exists and is another program");
    assertEquals(await Deno.readTextFile(`${home}/parscale`), "another");
  }));
