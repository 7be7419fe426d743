/** The tour of README.md, on the model that it names for machines without the hub. */
import { assert, assertEquals } from "@std/assert";
import { runShellOnTerminal } from "../cli/terminal.ts";
import { TestServer } from "../cli/serve_testing.ts";
import { linkSync } from "../links.ts";
import { withScratch } from "../scratch.ts";
import { ROOT } from "../fixtures.ts";
import { realTest } from "./model.ts";

/** Time without a word after which people ask whether a program still runs. */
const SILENCE_MS = 2000;

/** Runs a line on a terminal; other programs may cause a silence, but hardly three times in a row. */
async function runAloud(line: string, cwd: string): Promise<string> {
  const again = /^parscale (train|eval)/.test(line) ? `${line} --overwrite` : line;
  for (let attempt = 1;; attempt++) {
    const { code, raw, silence } = await runShellOnTerminal(attempt === 1 ? line : again, {
      cwd,
      env: { PARSCALE_CACHE: `${cwd}/cache` },
    });
    assertEquals(code, 0, `${line}\n${raw}`);
    if (silence.ms <= SILENCE_MS) return raw;
    assert(attempt < 3, `${line}: ${silence.ms} ms of silence after\n${silence.after}`);
  }
}

realTest(
  "the tour of README.md runs as it stands and is never silent for long",
  (path) =>
    withScratch(async (cwd) => {
      linkSync(`${ROOT}fixtures`, `${cwd}/fixtures`);
      const tour = /^## Tour\n[^]*?```sh network\n([^]*?)```/m.exec(
        Deno.readTextFileSync(`${ROOT}README.md`),
      )![1]!;
      const lines = tour.trim().replaceAll(/\S+-GGUF:Q4_K_M/g, path)
        .replace("--steps 20", "--steps 5").replace("--limit 5", "--limit 1").split("\n");
      let said = "";
      for (const line of lines) {
        const serve = /^parscale serve (.*)$/.exec(line);
        if (serve) {
          await using server = await TestServer.start(serve[1]!.split(" "), {}, { cwd });
          assertEquals((await fetch(`${server.url}/health`)).status, 200);
        } else said += await runAloud(line, cwd);
      }
      const [before, after] = [...said.matchAll(/validation loss \D*(?:\d+: )?(\d\.\d+)/g)]
        .map(([, loss]) => Number(loss));
      assert(after! < before!, said);
    }),
);
