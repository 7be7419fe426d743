/**
 * A run of `parscale train` that is killed or interrupted continues as if nothing had happened.
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { readHeader } from "../../core/checkpoint/safetensors.ts";
import { assertRefused, jsonLines } from "../cli/models.ts";
import { ROWS, texts, withWorkplace, type Workplace } from "../cli/train_testing.ts";
import { allPaths } from "../cli/stand_in_hub.ts";
import { linkSync } from "../links.ts";
import { KILLS, untilDone } from "./until_done.ts";

const PACKED = "--model bf16 --data texts.jsonl --seq-len 24 --batch 4 --micro-batch 2 --lr 1e-3";

/** Bytes that two runs must share. */
const RESULT = ["model.safetensors", "training_state.safetensors", "training_state.json"];

async function assertSameResult(place: Workplace, run: string, expected: string): Promise<void> {
  assertEquals(place.steady(run), place.steady(expected));
  assertEquals(place.last(run).split("/").pop(), place.last(expected).split("/").pop());
  for (const file of RESULT) {
    const [a, b] = await Promise.all(
      [run, expected].map((name) => Deno.readFile(`${place.last(name)}/${file}`)),
    );
    // Printing a difference of this many bytes would take long.
    assert(a!.length === b!.length && a!.every((byte, i) => byte === b![i]), `${file} differs`);
  }
}

/** Requires that every checkpoint is whole and `last` names one; returns how many there are. */
async function checkCheckpoints(place: Workplace, run: string): Promise<number> {
  const found = place.names(run).filter((name) => name.startsWith("checkpoint-"));
  for (const name of found) {
    const path = `${place.cwd}/${run}/${name}`;
    for (const file of ["config.json", "training_state.json"]) {
      JSON.parse(await Deno.readTextFile(`${path}/${file}`));
    }
    // Reading a header compares the offsets in it with the size of the file.
    for (const file of ["model.safetensors", "training_state.safetensors"]) {
      assert((await readHeader(`${path}/${file}`)).length > 0, `${path}/${file}`);
    }
  }
  assert(found.includes(place.last(run).split("/").at(-1)!), "last names a checkpoint");
  return found.length;
}

/** Starts a run, waits until it has printed some rows and a little longer, and sends a signal. */
async function stopAfter(
  place: Workplace,
  line: string,
  rows: number,
  signal: Deno.Signal,
  milliseconds = 0,
): Promise<{ code: number; stderr: string }> {
  const child = place.start(`${line} --jsonl -q`);
  const stderr = new Response(child.stderr).text();
  let text = "", sent = false;
  for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
    text += part;
    if (sent || text.split("\n").length <= rows) continue;
    await new Promise((resolve) => setTimeout(resolve, milliseconds));
    child.kill(signal);
    sent = true;
  }
  const { code } = await child.status;
  return { code, stderr: await stderr };
}

Deno.test(`${KILLS} kills of train --resume --keep 1 --save-every 1: whole checkpoints, and the same result bit for bit`, () =>
  withWorkplace(async (place) => {
    const line = `${PACKED} --steps 60 --eval-split 0.1 --eval-every 20 --save-every 1 --keep 1`;
    const began = performance.now();
    await place.trained(`${line} --out whole`);
    const longest = Math.round(performance.now() - began);
    const repeated = place.args(`${line} --resume --out killed`), { cwd, env } = place;
    const onKill = async () => {
      // It may have been killed before the first step was saved.
      if (!place.exists("killed/last")) return;
      assert(await checkCheckpoints(place, "killed") <= 2, place.names("killed").join(" "));
    };
    await untilDone(repeated, { cwd, env, longest, seed: 1, onKill });
    await assertSameResult(place, "killed", "whole");
    assertEquals(await checkCheckpoints(place, "killed"), 1);
    const hidden = place.names("killed").filter((name) => name.startsWith(".checkpoint"));
    assertEquals(hidden, [], "the next run removes what kills left");
    const files = () => allPaths(`${cwd}/killed`).filter((path) => !path.endsWith("/.lock"));
    const before = files().map((path) => Deno.statSync(path).ino);
    const { code, stderr } = await place.train(`${line} --resume --out killed`);
    assertEquals([code, stderr], [0, '"killed" is complete: all 60 steps are done\n']);
    assertEquals(files().map((path) => Deno.statSync(path).ino), before);
  }));

Deno.test("Ctrl-C, SIGTERM and SIGHUP save, and say how to continue", () =>
  withWorkplace(async (place) => {
    const line = "--model p2 --data texts.jsonl --seq-len 24 --batch 2 --steps 120";
    const whole = place.trained(`${line} --out whole`);
    const first = await stopAfter(place, `${line} --out run`, 5, "SIGINT");
    assertEquals(first.code, 130);
    const hint =
      /^\{"error":\{"code":130,"kind":"interrupted".*step (\d+) is saved; resume with `parscale (train --resume --out run)`"/;
    const [, step, command] = hint.exec(first.stderr)!;
    assertStringIncludes(place.last("run"), step!.padStart(6, "0"));
    assertEquals(place.metrics("run").length, Number(step));
    const second = await stopAfter(place, command!.slice("train ".length), 5, "SIGTERM");
    assertEquals(second.code, 143);
    assert(place.metrics("run").length >= Number(step) + 5);
    const third = await stopAfter(place, "--resume --out run", 5, "SIGHUP");
    assertEquals(third.code, 143);
    assertStringIncludes(place.last("run"), `${place.metrics("run").length}`.padStart(6, "0"));
    await place.trained("--resume --out run");
    await whole;
    await assertSameResult(place, "run", "whole");
  }));

Deno.test("--keep never removes the newest checkpoint, nor later ones that were left behind", () =>
  withWorkplace(async (place) => {
    await place.trained(`--model p2 ${ROWS} --steps 6 --save-every 3 --out run`);
    place.write("run/last", "checkpoint-000003\n");
    await Deno.mkdir(`${place.cwd}/run/.checkpoint-000004.partial-1-00000000`);
    const next = place.start("--resume --out run --save-every 1 --keep 1 --jsonl");
    const stderr = new Response(next.stderr).text();
    const reader = next.stdout.getReader();
    await reader.read();
    await reader.cancel(); // ends it before the last step, or not: a checkpoint must be there
    assertEquals([(await next.status).code, (await stderr).includes("error")], [0, false]);
    assert((await place.weights("run")).size > 0, "last names a checkpoint that exists");
    assert(place.exists("run/checkpoint-000006"));
    assert(!place.exists("run/.checkpoint-000004.partial-1-00000000"));
    assert(!place.exists("run/checkpoint-000003"));
  }));

Deno.test("--keep removes what a run left that was killed before it could remove it", () =>
  withWorkplace(async (place) => {
    await place.trained(`--model p2 ${ROWS} --steps 3 --save-every 1 --out run`);
    await place.trained("--resume --out run --keep 1");
    const found = place.names("run").filter((name) => name.startsWith("checkpoint-"));
    assertEquals(found, ["checkpoint-000003"]);
  }));

Deno.test("free flags may change, others may not; they may be repeated", () =>
  withWorkplace(async (place) => {
    await place.trained(`--model p2 ${ROWS} --steps 4 --save-every 2 --lr 1e-3 --out run`);
    place.write("run/last", "checkpoint-000002\n");
    const changed = {
      "--lr 1e-4": "--lr",
      "--steps 8 --train-params introduced": "--train-params", // a run may become longer
      "--data texts.jsonl": "--data",
    };
    for (const [flags, named] of Object.entries(changed)) {
      assertRefused(
        await place.train(`--resume --out run ${flags}`),
        2,
        `cannot resume "run" with other values of ${named}`,
      );
    }
    await place.trained("--resume --out run --lr 0.001 --save-every 1 --keep 1 --log-every 1");
    assertEquals(
      place.names("run"),
      ".lock checkpoint-000004 config.json last metrics.jsonl".split(" "),
    );
  }));

Deno.test("other data, another model or a damaged state is refused", () =>
  withWorkplace(async (place) => {
    const other = (what: string) => `cannot resume "run": the ${what} changed since the run began`;
    linkSync("p2", `${place.cwd}/m`);
    const valid = "--eval-data valid.jsonl";
    place.write("valid.jsonl", jsonLines(...texts(4)));
    const line = `--model m --data texts.jsonl ${valid} --seq-len 24 --batch 4 --steps 4`;
    await place.trained(`${line} --save-every 2 --out run`);
    place.write("run/last", "checkpoint-000002\n");
    const resume = () => place.train("--resume --out run");

    const original = place.read("texts.jsonl");
    place.write("texts.jsonl", original.replace("the sum", "the Sum"));
    assertRefused(await resume(), 3, other("data"));
    place.write("texts.jsonl", original);
    place.write("valid.jsonl", jsonLines(...texts(5)));
    assertRefused(await resume(), 3, other("validation data"));
    place.write("valid.jsonl", jsonLines(...texts(4)));
    await Deno.remove(`${place.cwd}/m`);
    linkSync("p1", `${place.cwd}/m`);
    assertRefused(await resume(), 3, other("trained parameters"));
    await Deno.remove(`${place.cwd}/m`);
    assertEquals((await resume()).code, 3);
    linkSync("p2", `${place.cwd}/m`);

    const state = `${place.last("run")}/training_state.safetensors`;
    const bytes = await Deno.readFile(state);
    await Deno.writeFile(state, bytes.subarray(0, bytes.length >> 1));
    const damaged = await resume();
    assertEquals([damaged.code, damaged.stdout], [3, ""]);
    assertMatch(damaged.stderr, /^error: tensor .*training_state\.safetensors" is truncated: /);
    await Deno.writeFile(state, bytes);
    assertEquals(place.metrics("run").length, 5, "a refusal discards nothing");
    assertEquals((await resume()).code, 0);
  }));

Deno.test("resumed in another folder, relative paths are explained, absolute ones do", () =>
  withWorkplace(async (place) => {
    const { cwd } = place, sub = `${cwd}/sub`;
    await Deno.mkdir(sub);
    await place.trained(`--model p2 ${ROWS} --steps 1 --out near`);
    const refused = await place.train("--resume --out ../near", { cwd: sub });
    assertEquals([refused.code, refused.stdout], [3, ""]);
    assertStringIncludes(refused.stderr, 'error: no such folder: "p2"');
    assertStringIncludes(
      refused.stderr,
      `hint: relative paths of this run start at "${await Deno.realPath(cwd)}"; resume it there\n`,
    );
    const rows = ROWS.replace("rows.jsonl", `${cwd}/rows.jsonl`);
    await place.trained(`--model ${cwd}/p2 ${rows} --steps 1 --out far`);
    assertEquals((await place.train("--resume --out ../far", { cwd: sub })).code, 0);
  }));
