/** `deno task first-run` against a stand-in hub: the report, and what it says of a failure. */
import { fileURLToPath } from "node:url";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { TINY } from "./eval_testing.ts";
import { environment } from "./run.ts";
import { withScratch } from "../scratch.ts";
import { allPaths, type StandInRepository, startHub } from "./stand_in_hub.ts";

const SCRIPT = fileURLToPath(new URL("../first_run/run.ts", import.meta.url));
const ROWS = fileURLToPath(new URL("../../fixtures/eval/hub/winogrande/", import.meta.url));

const filesOf = (folder: string) =>
  new Map(
    allPaths(folder.replace(/\/$/, "")).map((path) =>
      [path.slice(folder.replace(/\/$/, "").length + 1), Deno.readFileSync(path)] as const
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
    const { code, stdout } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", SCRIPT, "--model", "tiny/qwen", "--tasks", "winogrande,sciq"]
        .concat("--eval-tasks", "winogrande", "--rows", "2", "--python", "no-such-python"),
      cwd,
      env: environment({ HF_ENDPOINT: hub.url, HF_HOME: `${cwd}/home` }),
      clearEnv: true,
      stderr: "null",
    }).output();
    const report = new TextDecoder().decode(stdout);
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
