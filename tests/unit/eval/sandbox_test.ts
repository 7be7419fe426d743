/** The parts of the sandbox: results that count, kept references, limits, slots. */
import { assert, assertEquals } from "@std/assert";
import { References } from "../../../core/eval/grading/code/reference.ts";
import { Slots } from "../../../core/eval/grading/code/slots.ts";
import {
  type End,
  type Job,
  type Results,
  type Sandbox,
  totalLimit,
  wallLimit,
} from "../../../core/eval/sandbox/job.ts";
import { Pool } from "../../../core/eval/sandbox/pool.ts";
import { answerIn, line, lines } from "../../../core/eval/sandbox/protocol.ts";
import { withScratch } from "../../scratch.ts";
import { PROBLEM } from "./sandbox_problem.ts";

/** A sandbox whose jobs answer `texts`. */
function answering(texts: readonly string[], ending: End["ending"] = "done"): Sandbox {
  return {
    run: (_job: Job, onResults: (results: Results) => boolean) => {
      onResults({ first: 0, texts, seconds: texts.map(() => 0.001) });
      return Promise.resolve({ ending });
    },
  };
}

Deno.test("an incomplete or forged reference is neither used nor written", () =>
  withScratch(async (folder) => {
    for (const texts of [[], ["=38"], ["=38", "=69", "=100", "=131"], ["", "", ""]]) {
      const references = new References(answering(texts), "3.11", folder);
      assert("unavailable" in await references.of(PROBLEM), JSON.stringify(texts));
    }
    assertEquals(await Array.fromAsync(Deno.readDir(folder)), []);
    const whole = new References(answering(["=38", "=69", "=100"]), "3.11", folder);
    const reference = await whole.of(PROBLEM);
    assertEquals("expected" in reference && reference.expected, ["=38", "=69", "=100"]);
  }));

Deno.test("a kept reference with fewer results than inputs is not read", () =>
  withScratch(async (folder) => {
    await new References(answering(["=38", "=69", "=100"]), "3.11", folder).of(PROBLEM);
    const [{ name }] = await Array.fromAsync(Deno.readDir(`${folder}/expected`)) as [Deno.DirEntry];
    const poisoned = JSON.stringify({ calls: null, texts: [], seconds: [] });
    const { gzipSync } = await import("node:zlib");
    await Deno.writeFile(`${folder}/expected/${name}`, gzipSync(poisoned));
    const again = await new References(answering(["=38", "=69", "=100"]), "3.11", folder)
      .of(PROBLEM);
    assertEquals("expected" in again && again.expected.length, 3);
  }));

Deno.test("a job of a closed sandbox starts no process", async () => {
  const pool = new Pool(1, { folder: "/", residentBytes: 1 }, "none");
  await pool[Symbol.asyncDispose]();
  const job = {
    source: "",
    entryPoint: "f",
    inputs: [],
    rule: "encoded",
    limits: [],
    totalLimit: 1,
  };
  const { spawn } = Deno.Command.prototype;
  let started = 0;
  Deno.Command.prototype.spawn = function () {
    started++;
    return spawn.call(this);
  };
  pool.run(job, () => true).catch(() => {});
  Deno.Command.prototype.spawn = spawn;
  assertEquals(started, 0);
});

Deno.test("slots: jobs overlap up to the limit, work alone overlaps none and is not overtaken", async () => {
  const slots = new Slots(2);
  let running = 0, most = 0;
  const order: string[] = [];
  const work = (name: string) => async () => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setTimeout(resolve, 5));
    running--;
    order.push(name);
    return { ending: "done" } as const;
  };
  const run = (name: string) => slots.limit({ run: work(name) }).run({} as Job, () => true);
  const before = [run("a"), run("b"), run("c")];
  const alone = slots.alone(async () => {
    assertEquals(running, 0);
    await work("alone")();
  });
  const after = [run("d"), run("e")];
  await Promise.all([...before, alone, ...after]);
  assertEquals(most, 2);
  assertEquals(order.indexOf("alone"), 3);
});

Deno.test("lines over the limit are dropped while they are read", async () => {
  const text = `short\n${"x".repeat(100)}\n${"y".repeat(5)}\n`;
  const found: string[] = [];
  for await (const line of lines(new Blob([text]).stream(), 50)) found.push(line);
  assertEquals(found, ["short", "yyyyy"]);
});

Deno.test("a job has its calls' limits, at most a minute, or twice the reference's time", () => {
  assertEquals(totalLimit([1, 2, 3], [0.5]), 8);
  assertEquals(totalLimit(new Array<number>(100).fill(1), [0.5]), 62);
  assertEquals(totalLimit([1], [40, 5]), 92);
  const job = { totalLimit: 8 } as Job;
  assertEquals([wallLimit(job), wallLimit({ ...job, clock: "cpu" })], [8, 40]);
});

Deno.test("lines of a child count only with its token, behind whatever a program printed", () => {
  const text = (token: string) => new TextDecoder().decode(line({ type: "rest" }, token)).trim();
  assertEquals(answerIn(text("secret "), "secret "), { type: "rest" } as unknown);
  assertEquals(answerIn(`noise ${text("secret ")}`, "secret "), { type: "rest" } as unknown);
  for (const forged of [text(""), text("guess "), "secret {"]) {
    assertEquals(answerIn(forged, "secret "), undefined);
  }
});
