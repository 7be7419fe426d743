/** Adapters that `parscale train` makes: the backbone stays, whatever takes a model takes the run. */
import { assert, assertEquals } from "@std/assert";
import { backboneHash } from "../../core/checkpoint/backbone.ts";
import { openCheckpoint } from "../../core/checkpoint/open.ts";
import { assertRefused, copyFolder, jsonLines, parseLines, PLAIN_MODEL, rowsOf } from "./models.ts";
import { ROWS, withWorkplace, type Workplace } from "./train_testing.ts";

const INTRODUCED = "--train-params introduced --lr 0.05 --schedule constant --warmup 0";

/** Text and log-likelihoods of a model, as printed. */
async function answers(place: Workplace, model: string): Promise<string[]> {
  const prompt = jsonLines({ prompt: "2+2= " }, { prompt: "the sum of" });
  const pair = jsonLines({ prompt: "two and three is", continuation: " five" });
  const [text, scores] = await Promise.all([
    place.run(`generate --model ${model} --max-tokens 8 --ignore-eos --jsonl`, prompt),
    place.run(`score --model ${model} --jsonl --stream-weights`, pair),
  ]);
  const tokens = parseLines(text.stdout).map((row) => JSON.stringify(row.tokens));
  return [...tokens, scores.stdout];
}

async function fileHash(path: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", await Deno.readFile(path));
  return new Uint8Array(digest).toHex();
}

Deno.test("an adapter is saved, the backbone is not touched, and both ways to run it agree", () =>
  withWorkplace(async (place) => {
    const weights = `${PLAIN_MODEL}/model.safetensors`;
    const before = await fileHash(weights);
    const two = `--model p1 --streams 2 ${INTRODUCED} ${ROWS}`;
    await place.trained(`${two} --steps 6 --prefix-init normal --out run`);
    assertEquals(await fileHash(weights), before);
    assertEquals(
      place.names("run/checkpoint-000006"),
      ("README.md config.json introduced.safetensors training_state.json " +
        "training_state.safetensors").split(" "),
    );
    const config = place.config("run/checkpoint-000006");
    assertEquals(config.model_type, "qwen2_parscale");
    assertEquals([config.parscale_n, config.parscale_n_tokens], [2, 48]);
    const backbone = await backboneHash(await openCheckpoint(PLAIN_MODEL));
    assertEquals(config.parscale_backbone_sha256, backbone);
    const tensors = await place.weights("run", "introduced.safetensors");
    assert([...tensors.keys()].every((name) => /prefix_[kv]$|aggregate_layer/.test(name)));

    const both = await answers(place, "p1 --adapter run");
    assertEquals(await answers(place, "run"), both);
    assertEquals(await answers(place, "p1 --adapter run/checkpoint-000006"), both);
    const plain = await answers(place, "p1");
    assert(both.every((answer, i) => answer !== plain[i]), "training made a difference");

    // The run finds its backbone from any folder.
    await Deno.mkdir(`${place.cwd}/sub`);
    const options = { cwd: `${place.cwd}/sub`, stdin: jsonLines({ tokens: [1, 2, 3] }) };
    await rowsOf("score --model ../run", options);
  }));

Deno.test("an adapter over a ParScale model, and one that continues from another", () =>
  withWorkplace(async (place) => {
    await place.trained(`--model p2 ${INTRODUCED} ${ROWS} --steps 2 --out first`);
    const how = `${INTRODUCED} ${ROWS} --no-shuffle --steps 2`;
    const metrics = await place.trained(`--model first ${how} --out second`);
    const whole = await place.trained(`--model p2 --adapter first ${how} --out other`);
    assertEquals(metrics.map(({ loss }) => loss), whole.map(({ loss }) => loss));
    const second = await answers(place, "second");
    assertEquals(await answers(place, "p2 --adapter other"), second);
    assert(second[2] !== (await answers(place, "first"))[2]);
    // Trained as a whole, it becomes a model of its own.
    await place.trained(`--model second ${ROWS} --steps 1 --lr 0 --out merged`);
    assertEquals(await answers(place, "merged"), second);
  }));

Deno.test("another backbone under an adapter is refused on resuming", () =>
  withWorkplace(async (place) => {
    await copyFolder(PLAIN_MODEL, `${place.cwd}/own`);
    const line = `--model own --streams 2 ${INTRODUCED} ${ROWS} --steps 2 --save-every 1`;
    await place.trained(`${line} --out run`);
    await place.trained(`--init scratch --config-from p1 ${ROWS} --steps 1 --out scratch`);
    await Deno.remove(`${place.cwd}/own/model.safetensors`);
    await Deno.copyFile(
      `${place.last("scratch")}/model.safetensors`,
      `${place.cwd}/own/model.safetensors`,
    );
    const changed = 'cannot resume "run": the backbone changed since the run began';
    assertRefused(await place.train("--resume --out run"), 3, changed);
  }));
