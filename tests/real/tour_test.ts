/** The tour of README.md, on the model that it names for machines without the hub. */
import { assert, assertEquals } from "@std/assert";
import { fileURLToPath } from "node:url";
import { runShell } from "../cli/run.ts";
import { TestServer } from "../cli/serve_testing.ts";
import { linkSync } from "../links.ts";
import { withScratch } from "../scratch.ts";
import { realTest } from "./model.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

realTest("the tour of README.md runs as it stands", (path) =>
  withScratch(async (cwd) => {
    linkSync(`${ROOT}fixtures`, `${cwd}/fixtures`);
    const tour = /^## Tour\n[^]*?```sh network\n([^]*?)```/m.exec(
      Deno.readTextFileSync(`${ROOT}README.md`),
    )![1]!;
    const lines = tour.trim().replaceAll(/\S+-GGUF:Q4_K_M/g, path)
      .replace("--steps 20", "--steps 5").replace("--limit 5", "--limit 1").split("\n");
    const env = { PARSCALE_CACHE: `${cwd}/cache` };
    let said = "";
    for (const line of lines) {
      const serve = /^parscale serve (.*)$/.exec(line);
      if (serve) {
        await using server = await TestServer.start(serve[1]!.split(" "), {}, { cwd });
        assertEquals((await fetch(`${server.url}/health`)).status, 200);
        continue;
      }
      const { code, stderr } = await runShell(line, { cwd, env });
      assertEquals(code, 0, `${line}\n${stderr}`);
      said += stderr;
    }
    const [before, after] = [...said.matchAll(/^validation loss \D*(?:\d+: )?(\d\.\d+)$/gm)]
      .map(([, loss]) => Number(loss));
    assert(after! < before!, said);
  }));
