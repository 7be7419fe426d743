/** Misuse of `parscale train`: the error, a hint, and nothing on the disk. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { jsonLines } from "./models.ts";
import { ROWS, withWorkplace, type Workplace } from "./train_testing.ts";

type Refusal = readonly [code: number, line: string, message: string, hint?: string | undefined];

async function assertRefusals(place: Workplace, refusals: readonly Refusal[]): Promise<void> {
  await Promise.all(refusals.map(async ([code, line, message, hint]) => {
    const { code: found, stdout, stderr } = await place.train(`${line} --out no`);
    assertEquals([found, stdout], [code, ""], `${line}: ${stderr}`);
    assertStringIncludes(`${stderr.split("\n\n")[0]}\n`, `error: ${message}\n`, line);
    if (hint !== undefined) assertStringIncludes(stderr, `\nhint: ${hint}\n`, line);
    assert(!/^\s+at /m.test(stderr), stderr);
  }));
  assert(!place.exists("no"), "a refusal leaves no folder");
}

const P2 = "--model p2";

Deno.test("flags that are missing, contradict each other or the model", () =>
  withWorkplace(async (place) => {
    place.write("config.json", '{ "modle": "p2" }');
    await assertRefusals(place, [
      [
        2,
        `--config config.json ${ROWS} --steps 1`,
        'unknown key "modle" in config "config.json"',
        "did you mean `model`?",
      ],
      [2, `${ROWS} --steps 1`, "`train` needs `--model`, `--config-from` or `--resume`"],
      [2, `${P2} --steps 1`, "`train` needs `--data` or `--resume`"],
      [
        2,
        `${P2} --data hf://datasets/owner/name/train.parquet`,
        "data on the hub need `--steps`, `--tokens` or `--epochs`",
        "for a first try: --steps 100",
      ],
      [
        2,
        `${P2} ${ROWS} --steps 1 --micro-batch 3`,
        "`--micro-batch 3` does not divide `--batch 4`",
      ],
      [
        2,
        `${P2} --data texts.jsonl --seq-len 4000 --steps 1`,
        "`--seq-len 4000` exceeds the model's context of 2048 tokens",
        "raise it with --context 4000, for longer texts together with --rope-theta",
      ],
      [2, `${P2} ${ROWS} --steps 1 --init scratch`, "`--init scratch` needs `--config-from`"],
      [2, `${P2} ${ROWS} --steps 1 --config-from p1`, "`--config-from p1` needs `--init scratch`"],
      [2, `${P2} ${ROWS} --steps 1 --tokenizer p1`, "`--tokenizer p1` needs `--init scratch`"],
      [
        3,
        `${ROWS} --steps 1 --init scratch --config-from paper-0.6b`,
        'no such file or folder: "paper-0.6b"',
        "shapes of the paper are paper-0.5b, paper-0.7b, paper-1.1b, paper-1.6b, " +
        "paper-2.8b, paper-4.4b",
      ],
      [
        3,
        `${ROWS} --steps 1 --init scratch --config-from paper-0.5b --tokenizer .`,
        '"." has no tokenizer',
      ],
      [
        3,
        "--data texts.jsonl --steps 1 --init scratch --config-from paper-0.5b",
        'row 1 of "texts.jsonl" is text, and the model has no tokenizer',
        "a model from scratch takes `--tokenizer FOLDER`",
      ],
      [
        2,
        `${P2} ${ROWS} --epochs 0 --lr -1 --beta2 1`,
        'invalid value "0" for `--epochs`: must be an integer of at least 1\n' +
        'error: invalid value "-1" for `--lr`: must be a number of at least 0\n' +
        'error: invalid value "1" for `--beta2`: must be a number of at least 0 and below 1',
      ],
    ]);
  }));

Deno.test("schedules whose phases do not fit into the run", () =>
  withWorkplace(async (place) => {
    const wsd = `${P2} ${ROWS} --steps 10 --schedule wsd`;
    await assertRefusals(place, [
      [
        2,
        `${P2} ${ROWS} --steps 10 --warmup 11`,
        "a warm-up of 11 steps is longer than the run of 10",
        "pass --warmup 1, or train longer",
      ],
      [
        2,
        `${wsd} --warmup 5 --decay-steps 6`,
        "a wsd schedule needs decay steps from 1 to 5, not 6",
      ],
      [
        2,
        `--model p1 --preset paper-cpt ${ROWS} --steps 100`,
        "a warm-up of 2000 steps is longer than the run of 100",
        "pass --warmup 10, or train longer",
      ],
    ]);
  }));

Deno.test("models that cannot be given what is asked", () =>
  withWorkplace(async (place) => {
    const strip = "leave the flag out, or take the backbone with `parscale convert --strip`";
    await assertRefusals(place, [
      [
        3,
        `--model ./none ${ROWS} --steps 1`,
        'no such folder: "./none"',
        "check the path; a model of the hub is named OWNER/NAME",
      ],
      [
        2,
        `--model p1 ${ROWS} --steps 1 --train-params introduced`,
        "this model has no introduced parameters to train: no prefix, aggregator, LoRA or BitFit",
        "add `--streams 4`, or `--transform prefix` for a single stream",
      ],
      [
        2,
        `--init scratch --config-from p2 ${ROWS} --steps 1 --train-params introduced`,
        "a model from scratch cannot train its introduced parameters alone: its backbone would be lost",
      ],
      [
        2,
        `${P2} ${ROWS} --steps 1 --streams 4`,
        "`--streams` cannot change a ParScale model: it has streams 2",
        strip,
      ],
      [
        2,
        `${P2} ${ROWS} --steps 1 --prefix-tokens 9`,
        "`--prefix-tokens` cannot change a ParScale model: it has prefix tokens 8",
      ],
      [
        2,
        `--model p1 ${ROWS} --steps 1 --streams 2 --lora-rank 4`,
        "`--lora-rank` needs `--transform lora`",
      ],
      [
        2,
        `--model p1 ${ROWS} --steps 1 --reparameterize 8`,
        "`--reparameterize` needs a model with prefixes",
      ],
    ]);
  }));

Deno.test("data that is missing, empty, broken or too long", () =>
  withWorkplace(async (place) => {
    const files = {
      "empty.jsonl": "",
      "mixed.jsonl": jsonLines({ text: "a b" }, { tokens: [1, 2] }),
      "masked.jsonl": jsonLines({ tokens: [1, 2, 3], labels: [1, -100, -100] }),
      "unknown.jsonl": jsonLines({ tokens: [1, 512] }),
      "broken.jsonl": '{"tokens": [1, 2]}\n{"tokens":',
    };
    for (const [name, text] of Object.entries(files)) place.write(name, text);
    const about = (
      file: string,
      message: string,
      hint?: string,
    ): Refusal => [3, `${P2} --data ${file} --seq-len 16 --steps 1`, message, hint];
    await assertRefusals(place, [
      about("none.jsonl", 'no data files match "none.jsonl"'),
      about("empty.jsonl", '"empty.jsonl" has no rows'),
      about("-", '"standard input" has no rows'),
      about(
        "mixed.jsonl",
        'row 2 of "mixed.jsonl" has kind "tokens", expected "text" like the rows before',
        "put each kind into a file of its own",
      ),
      about("masked.jsonl", "none of 1 documents has a trained token that fits"),
      about(
        "unknown.jsonl",
        'row 1 of "unknown.jsonl" has token id 512, expected 0 to 511',
        "check that data and model use the same tokenizer",
      ),
      about(
        "broken.jsonl",
        'row 2 of "broken.jsonl" is not valid JSON: unexpected end of JSON input',
      ),
      [
        3,
        `${P2} ${ROWS.replace("16", "8")} --no-shuffle --steps 1`,
        'row 1 of "rows.jsonl" does not fit into a row: 16 tokens, expected at most 8',
        "raise `--seq-len` to 16 or more",
      ],
    ]);
  }));

Deno.test("rows that do not fit may be cut or left out", () =>
  withWorkplace(async (place) => {
    place.write("lengths.jsonl", jsonLines({ tokens: [1, 2, 3] }, { tokens: [4, 5, 6, 7, 8, 9] }));
    const line = `${P2} --data lengths.jsonl --no-pack --no-shuffle --seq-len 4 --batch 2`;
    const [cut, dropped] = await Promise.all([
      place.trained(`${line} --long-rows truncate --epochs 1 --out cut`),
      place.trained(`${line} --long-rows drop --epochs 1 --out dropped`),
    ]);
    assertEquals([cut!.length, cut![0].tokens], [1, 7]);
    assertEquals([dropped!.length, dropped![0].tokens], [1, 3]);
  }));

Deno.test("more memory than allowed, which is known before anything is allocated", () =>
  withWorkplace(async (place) => {
    const result = await place.train(`${P2} ${ROWS} --steps 1 --memory-limit 1MB --out no`);
    assertEquals([result.code, result.stdout, place.exists("no")], [4, "", false]);
    assertMatch(
      result.stderr,
      /^error: training needs \d+ MB, more than the memory limit of 1\.0 MB\n\nhint: lower --seq-len\n$/,
    );
  }));
