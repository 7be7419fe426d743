/**
 * `train --keep 1 --save-every 1` killed at random moments: after every kill all checkpoints are
 * complete and `last` names one of them.
 *
 * Twenty kills; PARSCALE_KILLS sets another number.
 */
import { assert, assertEquals } from "@std/assert";
import { readHeader } from "../../core/checkpoint/safetensors.ts";
import { ROWS, withWorkplace, type Workplace } from "../cli/train_testing.ts";

const KILLS = Number(Deno.env.get("PARSCALE_KILLS") ?? 20);

/** Starts or resumes the run, waits for its first step, and ends it a little later. */
async function stopOnce(place: Workplace, line: string, signal: Deno.Signal): Promise<number> {
  const child = place.start(`${line} --jsonl -q`);
  const stderr = new Response(child.stderr).text();
  let sent = false;
  for await (const _ of child.stdout) {
    if (sent) continue;
    sent = true;
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 60));
    child.kill(signal);
  }
  const { code } = await child.status;
  if (code === 137) assertEquals(await stderr, "");
  return code;
}

/** Files of every checkpoint, which must be whole; returns how many there are. */
async function checkCheckpoints(place: Workplace, run: string): Promise<number> {
  const found = place.names(run).filter((name) => name.startsWith("checkpoint-"));
  for (const name of found) {
    const path = `${place.cwd}/${run}/${name}`;
    for (const file of ["config.json", "training_state.json"]) {
      JSON.parse(await Deno.readTextFile(`${path}/${file}`));
    }
    // Reading a header compares the offsets in it with the size of the file.
    for (const file of ["model.safetensors", "training_state.safetensors"]) {
      assert((await readHeader(`${path}/${file}`)).entries.length > 0, `${path}/${file}`);
    }
  }
  assert(found.includes(place.last(run).split("/").at(-1)!), "last names a checkpoint");
  return found.length;
}

Deno.test(`${KILLS} kills of train --keep 1 --save-every 1: a checkpoint is complete or absent`, () =>
  withWorkplace(async (place) => {
    let next = `--model p2 ${ROWS} --steps 100000 --save-every 1 --keep 1 --out run`;
    for (let kill = 0; kill < KILLS; kill++) {
      assertEquals(await stopOnce(place, next, "SIGKILL"), 137);
      next = "--resume --out run";
      // It may have been killed before the first step was saved.
      if (!place.exists("run/last")) continue;
      assert(await checkCheckpoints(place, "run") <= 2, place.names("run").join(" "));
    }
    assertEquals(await stopOnce(place, next, "SIGTERM"), 143);
    assertEquals(await checkCheckpoints(place, "run"), 1);
    const hidden = place.names("run").filter((name) => /^\.checkpoint/.test(name));
    assertEquals(hidden, [], "the next run removes what kills left");
  }));
