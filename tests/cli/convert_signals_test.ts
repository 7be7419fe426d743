/** Leftovers of an interrupted `parscale convert`. */
import { assert, assertEquals } from "@std/assert";
import { makeLargeModel } from "../unit/checkpoint/testing.ts";
import { PLAIN_MODEL } from "./models.ts";
import { converted, names } from "./convert_testing.ts";
import { parscale } from "./run.ts";
import { withScratch } from "../scratch.ts";

/** Starts converting a large model, sends a signal while its weights are being written. */
async function interrupted(cwd: string, signal: Deno.Signal) {
  const child = parscale(["convert", "--model", "large", "--streams", "2", "--out", "out"], {
    cwd,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const output = child.output();
  const weights = `${cwd}/.out.partial-${child.pid}/model.safetensors`;
  const size = () => {
    try {
      return Deno.statSync(weights).size;
    } catch {
      return 0;
    }
  };
  for (let waited = 0; size() < 8e6; waited += 5) {
    assert(waited < 60_000, "the conversion writes");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  child.kill(signal);
  const { code, stdout, stderr } = await output;
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

Deno.test("an interrupted conversion leaves nothing, and the next one removes what a killed one left", () =>
  withScratch(async (cwd) => {
    makeLargeModel(`${cwd}/large`, 2e9);
    for (
      const [signal, code, word] of [["SIGINT", 130, "Interrupted"], [
        "SIGTERM",
        143,
        "Terminated",
      ]] as const
    ) {
      const result = await interrupted(cwd, signal);
      const last = result.stderr.trimEnd().split("\n").at(-1);
      assertEquals([result.code, result.stdout, last], [code, "", `error: ${word}`]);
      assertEquals(names(cwd), ["large"]);
    }
    await interrupted(cwd, "SIGKILL");
    assert(!names(cwd).includes("out"));
    assertEquals(names(cwd).length, 2, "a hidden folder is left");
    await converted(cwd, "--model", PLAIN_MODEL, "--streams", "2", "--out", "out", "--verify");
    assertEquals(names(cwd), ["large", "out"]);
  }));
