/** `deno task setup` and `first-run`: a launcher, and a report against a stand-in hub. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { VERSION } from "../../core/base/version.ts";
import { ROOT } from "../../cli/release/stage.ts";
import { TINY } from "./eval_testing.ts";
import { MODEL } from "./models.ts";
import { environment, runCommand } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { allPaths, type StandInRepository, startHub } from "./stand_in_hub.ts";
import { FIXTURES } from "../fixtures.ts";

const SETUP = [Deno.execPath(), "run", "-A", "--node-modules-dir=manual"]
  .concat(`${ROOT}cli/release/setup.ts`);

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
      const homeless = await script("HOME=/dev/null parscale --version");
      assertEquals([homeless.stdout, homeless.stderr], [`parscale ${VERSION}\n`, ""]);
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

const ROWS = `${FIXTURES}eval/hub/winogrande`;

const filesOf = (folder: string) =>
  new Map(
    allPaths(folder).map((path) =>
      [path.slice(folder.length + 1), Deno.readFileSync(path)] as const
    ),
  );

const REPOSITORIES: readonly StandInRepository[] = [
  {
    kind: "model",
    name: "tiny/qwen",
    commit: "0123456789abcdef0123456789abcdef01234567",
    files: filesOf(TINY),
    isLarge: (path) => path.endsWith(".safetensors"),
  },
  {
    kind: "dataset",
    name: "allenai/winogrande",
    commit: "01e74176c63542e6b0bcb004dcdea22d94fb67b5",
    files: filesOf(ROWS),
    isLarge: () => true,
  },
];

Deno.test("first-run reports every step, and continues after one that fails", () =>
  withScratch(async (cwd) => {
    await using hub = startHub(REPOSITORIES);
    const first = [Deno.execPath(), "run", "-A", `${ROOT}tests/first_run/run.ts`];
    const flags = "--model tiny/qwen --tasks winogrande,sciq --eval-tasks winogrande --rows 2 " +
      "--python no-such-python";
    const env = { HF_ENDPOINT: hub.url, HF_HOME: `${cwd}/home` };
    const { code, stdout: report } = await runCommand([...first, ...flags.split(" ")], {
      cwd,
      env,
    });
    assertEquals(code, 1, report);
    const results = [...report.matchAll(/^\| ([^|]+) \| (ok|failed|skipped) \|/gm)]
      .map(([, name, result]) => `${name}: ${result}`);
    assertEquals(results, [
      "fetch and check tiny/qwen: ok",
      "fetch winogrande: ok",
      "fetch sciq: failed",
      "log-probabilities equal those of transformers: skipped",
      "evaluate 2 rows: ok",
      "serve one answer: ok",
    ]);
    assertStringIncludes(report, "the hub has no dataset");
    assert(/to pin: allenai\/winogrande winogrande_xl\/validation.* [0-9a-f]{64}/.test(report));
  }));
