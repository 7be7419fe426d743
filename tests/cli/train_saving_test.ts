/** Files of `parscale train` when something goes wrong while it works. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { assertFailed, assertRefused, jsonLines } from "./models.ts";
import { canMount, runMounting } from "./small_disk.ts";
import { ROWS, withWorkplace } from "./train_testing.ts";

Deno.test("a loss that is not finite ends with 5, names the last good checkpoint, saves nothing", () =>
  withWorkplace(async (place) => {
    const line = `--model p2 ${ROWS} --schedule constant --warmup 0 --steps 40 --save-every 2`;
    const [late, early] = await Promise.all([
      place.train(`${line} --lr 1e4 --out late`),
      place.train(`${line} --lr 1e30 --out early --json`),
    ]);
    assertEquals([late.code, late.stdout], [5, ""]);
    const [, step] = /^error: training diverged at step (\d+): loss is NaN$/m.exec(late.stderr)!;
    const saved = Number(step) - 1 & ~1; // every second step
    assert(saved >= 2, late.stderr);
    const hint = `\nhint: last good checkpoint: late/checkpoint-00000${saved}\n`;
    assertStringIncludes(late.stderr, hint);
    assertEquals(place.last("late"), `${place.cwd}/late/checkpoint-00000${saved}`);
    assertEquals(place.metrics("late").length, Number(step) - 1);
    await place.weights("late");

    assertEquals([early.code, early.stdout], [5, ""]);
    const { error } = JSON.parse(early.stderr.trim().split("\n").at(-1)!);
    assertEquals([error.code, error.kind], [5, "numerical"]);
    assertEquals(error.hints[0], "no checkpoint was saved yet");
    assertEquals(place.names("early"), [".lock", "config.json", "metrics.jsonl"]);
  }));

Deno.test("a run that would not fit the memory takes fewer rows at a time, and so when it is resumed", () =>
  withWorkplace(async (place) => {
    const row = { tokens: Array.from({ length: 64 }, (_, i) => i) };
    place.write("long.jsonl", jsonLines(...Array.from({ length: 4 }, () => row)));
    const data = "--data long.jsonl --no-pack --seq-len 64 --batch 4";
    const line = `--model p2 ${data} --schedule constant`;
    const memory = async (flags: string) => {
      const planned = await place.train(`${line} --steps 1 --out no --dry-run --json ${flags}`);
      return JSON.parse(planned.stdout).results.memory_bytes as number;
    };
    const ways = ["--micro-batch 2", "--micro-batch 1"]
      .concat("--micro-batch 1 --checkpoint-activations");
    const [two, one, least] = await Promise.all(ways.map(memory)) as [number, number, number];
    assert(least < one && one < two);
    for (const [i, limit] of [two, two - 1, one - 1].entries()) {
      const flags = ways[i]!;
      const run = `run-${limit}`;
      const { code, stderr } = await place.train(
        `${line} --steps 2 --memory-limit ${limit}B --out ${run} --no-progress`,
      );
      assertEquals([code, stderr.split("\n")[0]], [0, `to take less memory: ${flags}`]);
      const longer = await place.train(`--resume --steps 3 --out ${run} -q`);
      assertEquals([longer.code, longer.stderr], [0, ""]);
      await place.trained(`${line} --steps 3 ${flags} --out given-${limit}`);
      assertEquals(place.steady(run), place.steady(`given-${limit}`));
    }
    const less = await place.train(`${line} --steps 2 --memory-limit ${least - 1}B --out no`);
    assertFailed(less, 4, "error: training needs ", "hint: lower --seq-len\n");
  }));

Deno.test("without a length or --out, train takes one epoch of its data and writes to run", () =>
  withWorkplace(async (place) => {
    const { code, stderr } = await place.train(`--model p2 ${ROWS} --save-every 3 -q`);
    assertEquals([code, stderr], [0, ""]);
    assertEquals(place.metrics("run").map(({ step }) => step), [1, 2, 3, 4, 5]);
    const more = await place.train("--resume -q");
    assertEquals([more.code, place.metrics("run").length], [0, 5], more.stderr);
  }));

Deno.test("train --overwrite replaces a run, and refuses a folder that holds anything else", () =>
  withWorkplace(async (place) => {
    const line = `--model p2 ${ROWS} --steps 2 --save-every 1 --out run`;
    await place.trained(line);
    place.write("run/notes.txt", "mine");
    const before = place.read("run/metrics.jsonl");
    const hint = "hint: pass `--resume` or `--overwrite`, or choose another `--out`";
    assertFailed(await place.train(line), 2, 'error: "run" already exists\n', hint);
    assertEquals(place.read("run/metrics.jsonl"), before);
    // As a killed process leaves it.
    await Deno.mkdir(`${place.cwd}/run/.checkpoint-000089.partial-4194301-392bdbb9`);
    const again = `--model p2 ${ROWS} --steps 1 --overwrite --tensorboard --out run`;
    const notes = '"run" holds "notes.txt", which is not part of a training run';
    assertRefused(await place.train(again), 2, `${notes}: it is not replaced`);
    assertEquals(place.read("run/metrics.jsonl"), before);
    Deno.removeSync(`${place.cwd}/run/notes.txt`);
    const names = [".lock", "checkpoint-000001", "config.json", "last", "metrics.jsonl"];
    for (const _ of ["over a run", "over one with tensorboard events"]) {
      await place.trained(again);
      assertEquals(place.names("run"), [...names, "tensorboard"]);
    }
  }));

Deno.test("--overwrite never removes the model, adapter or config the run starts from", () =>
  withWorkplace(async (place) => {
    await place.trained(`--model p2 ${ROWS} --steps 1 --out full`);
    const introduced = "--model p1 --streams 2 --train-params introduced";
    await place.trained(`${introduced} ${ROWS} --steps 1 --out peft`);
    const first = "full/checkpoint-000001", start = "is an input of this command";
    const holds = (path: string) => `holds the input "${path}"`;
    const scratch = `--init scratch --config-from ${first}`;
    for (
      const [line, out, reason] of [
        ["--model full", "full", start],
        [`--model ./${first}`, "full", holds(`./${first}`)],
        ["--model full", first, 'lies in the input "full"'],
        ["--model peft", "peft", start],
        ["--model p1 --adapter peft", "peft", start],
        [scratch, "full", holds(first)],
        [`${scratch}/config.json`, "full", holds(`${first}/config.json`)],
      ] as const
    ) {
      const found = await place.train(`${line} ${ROWS} --steps 1 --overwrite --out ${out}`);
      assertRefused(found, 2, `"${out}" ${reason}`);
    }
    assertEquals((await place.weights("full")).size, 34);
    assertEquals((await place.weights("peft", "introduced.safetensors")).size, 8);
  }));

Deno.test("two processes do not share a run folder", () =>
  withWorkplace(async (place) => {
    const line = "--model p2 --data texts.jsonl --seq-len 24 --batch 2 --out run";
    const first = place.start(`${line} --steps 100000 --jsonl`);
    const reader = first.stdout.getReader();
    await reader.read();
    const message = `another process (pid ${first.pid}) is using "run"`;
    const [resumed, replaced] = await Promise.all([
      place.train("--resume --out run"),
      place.train(`${line} --steps 1 --overwrite`),
    ]);
    assertRefused(resumed, 4, message);
    assertRefused(replaced, 4, message);
    assertStringIncludes(resumed.stderr, "hint: wait for it, or choose another `--out`");
    first.kill("SIGKILL");
    reader.releaseLock();
    await Promise.all([first.stdout.cancel(), first.stderr.cancel(), first.status]);
    assert(place.metrics("run").length > 0, "the run was not touched");
    await place.trained(`${line} --steps 1 --overwrite`);
  }));

Deno.test({
  name: "on a full disk the checkpoint before stays whole and the run can continue",
  ignore: !canMount,
  fn: () =>
    withWorkplace(async (place) => {
      // A checkpoint takes 1.7 MB: the first fits, the second does not.
      const script = `
        mount -t tmpfs -o size=3m none disk && export PARSCALE_CACHE=$PWD/cache
        train="parscale train --model p2 ${ROWS} --steps 4 --save-every 2 --threads 1 -q"
        $train --out disk/run >&2; echo $?
        cat disk/run/last; ls -A disk/run
        cp -r disk/run kept; parscale train --resume --out kept --threads 1 -q >/dev/null; echo $?`;
      await Deno.mkdir(`${place.cwd}/disk`);
      const result = await runMounting(script, place.cwd);
      const lines = result.stdout.trim().split("\n");
      assertEquals(lines[0], "4", result.stderr);
      assertEquals(
        lines.slice(1, -1),
        "checkpoint-000002 .lock checkpoint-000002 config.json last metrics.jsonl".split(" "),
      );
      assertMatch(
        result.stderr,
        /^error: cannot write "[^"]+checkpoint-000004[^"]+": the disk is full\n\nhint: free some space or choose a folder on another disk\n$/,
      );
      assertEquals(lines.at(-1), "0", "the copy on a larger disk continues");
      await place.trained(`--model p2 ${ROWS} --steps 4 --out whole`);
      assertEquals(await place.weights("kept"), await place.weights("whole"));
      assertEquals(place.steady("kept"), place.steady("whole"));
    }),
});

Deno.test("whole checkpoints have the Python file for transformers, adapters have none", () =>
  withWorkplace(async (place) => {
    for (const params of ["all", "introduced"]) {
      await place.trained(`--model p2 --train-params ${params} ${ROWS} --steps 1 --out ${params}`);
      const folder = `${params}/checkpoint-000001`, isWhole = params === "all";
      assertEquals(place.exists(`${folder}/modeling_parscale.py`), isWhole);
      assertEquals(place.config(folder).auto_map !== undefined, isWhole);
    }
  }));

Deno.test("--resume from a checkpoint that lacks a file names the one before, from which it continues", () =>
  withWorkplace(async (place) => {
    const flags = "--steps 4 --save-every 1 --schedule constant --out run";
    await place.trained(`--model p2 ${ROWS} ${flags}`);
    await Deno.remove(`${place.cwd}/run/checkpoint-000004/training_state.safetensors`);
    await Deno.remove(`${place.cwd}/run/checkpoint-000003/training_state.json`);
    const refused = await place.train("--resume --out run --steps 5");
    const problem = "lacks training_state.safetensors: training cannot continue";
    assertFailed(refused, 3, `error: "run/checkpoint-000004" ${problem}`);
    const command = /`echo (.*) > (.*)`/.exec(refused.stderr)!;
    assertEquals(command.slice(1), ["checkpoint-000002", "run/last"]);
    place.write("run/last", `${command[1]}\n`);
    await place.trained("--resume --out run --steps 5");
    assertEquals(place.read("run/last"), "checkpoint-000005\n");
    assertEquals(place.metrics("run").map(({ step }) => step), [1, 2, 3, 4, 5]);
  }));

Deno.test("--resume refuses a damaged config.json or training state by file and key", () =>
  withWorkplace(async (place) => {
    await place.trained(`--model p2 ${ROWS} --steps 2 --save-every 1 --out run`);
    place.write("run/last", "checkpoint-000001\n");
    const config = "run/config.json", state = "run/checkpoint-000001/training_state.json";
    const cases = [
      ...["parscale.run/9", "parscale.run/0", null].map((schema) => {
        const given = JSON.stringify(schema) ?? "nothing";
        const problem = `${given} in "schema", expected "parscale.run/1"`;
        return [config, "schema", schema, problem] as const;
      }),
      [config, "trained", 5, '5 in "trained", expected a list of names'],
      [config, "trained", ["a", 5], '["a",5] in "trained", expected a list of names'],
      ...[
        ["batch", "abc", "an integer of at least 1"],
        ["batch", null, "an integer of at least 1"],
        ["eval_data", null, "a path"],
        ["data", 5, "a path"],
        ["lr", -1, "a number of at least 0"],
        ["transform", [5], "one of prefix, lora, bitfit"],
      ].map(([key, value, words]) => {
        const flags = { ...place.config("run").config, [key as string]: value };
        const given = JSON.stringify([value].flat()[0]);
        return [config, "config", flags, `${given} in config.${key}, expected ${words}`] as const;
      }),
      [state, "step", -1, null],
      [state, "tokens", -1, null],
    ] as const;
    for (const [file, key, value, problem] of cases) {
      const whole = place.read(file);
      place.write(file, JSON.stringify({ ...JSON.parse(whole), [key]: value }));
      const refused = await place.train("--resume --out run");
      if (problem === null) assertFailed(refused, 3, `${file}" is not a training state`);
      else assertFailed(refused, 3, `error: "${file}" has ${problem}`);
      place.write(file, whole);
    }
    await place.trained("--resume --out run");
  }));

Deno.test("--resume --steps makes a run longer, as if it had been begun so", () =>
  withWorkplace(async (place) => {
    const flags = `--model p2 ${ROWS} --lr 1e-2`;
    const metrics = (out: string) =>
      place.metrics(out).map(({ step, loss, lr }) => [step, loss, lr].join());
    await place.trained(`${flags} --schedule constant --steps 4 --warmup 2 --out whole`);
    await place.trained(`${flags} --schedule constant --steps 2 --warmup 2 --out run`);
    await place.trained("--resume --steps 4 --out run");
    assertEquals(metrics("run"), metrics("whole"));
    assertEquals((await place.trained("--resume --out run")).length, 4, "the new end is kept");

    await place.trained(`${flags} --schedule constant --epochs 1 --out epoch`);
    const { steps } = place.config("epoch");
    await place.trained(`--resume --steps ${steps + 1} --unverified --out epoch`);
    assertEquals(place.metrics("epoch").length, steps + 1);

    const wsd = `${flags} --schedule wsd --decay-steps 2`;
    await place.trained(`${wsd} --steps 6 --save-every 4 --out wsd`);
    const late = await place.train("--resume --steps 9 --out wsd");
    assertRefused(late, 2, '"wsd" cannot continue to step 9: its learning rate falls since step 4');
    place.write("wsd/last", "checkpoint-000004\n");
    await place.trained("--resume --steps 9 --out wsd");
    await place.trained(`${wsd} --steps 9 --warmup 0 --out long`);
    assertEquals(metrics("wsd"), metrics("long"));

    await place.trained(`${flags} --steps 2 --out cosine`);
    const fallen = await place.train("--resume --steps 4 --out cosine");
    const reason = "the cosine of 2 steps has lowered the learning rate of the steps done";
    assertRefused(fallen, 2, `"cosine" cannot continue to step 4: ${reason}`);
    assertStringIncludes(fallen.stderr, "--model cosine --steps 2 --out NEW");
  }));
