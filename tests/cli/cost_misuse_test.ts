/** Misuse of `parscale cost`. */
import { fileURLToPath } from "node:url";
import { assertRefusals, MODEL } from "./models.ts";

const FIXTURES = fileURLToPath(new URL("../../fixtures/", import.meta.url));
const SHAPE = "cost --hidden-size 1536 --intermediate-size 8320";
const PASS = "hint: pass --model", LAW = "--match law";

Deno.test("what makes no sense is refused with a way out", async () => {
  const model = `cost --model ${MODEL}`, train = `${SHAPE} --mode train`;
  await assertRefusals([
    ["cost", 2, "needs `--model`, or `--hidden-size` and `--intermediate-size`", PASS],
    ["cost --hidden-size 64", 2, "needs `--model`, or `--intermediate-size` of a shape", PASS],
    [
      `${SHAPE} --num-kv-heads 3`,
      2,
      "`--num-kv-heads 3` does not divide the 16 heads",
      "1, 2, 4, 8",
    ],
    [`${SHAPE} --num-heads 14`, 2, "a multiple of the 14 heads", "--head-dim"],
    [
      `${SHAPE} --hardware a100-sxm-80`,
      2,
      'unknown hardware "a100-sxm-80"',
      "did you mean `a100-sxm-80gb`",
    ],
    [`${SHAPE} --hardware zx81`, 2, 'unknown hardware "zx81"', "parscale cost ls"],
    [
      `${SHAPE} --model ${MODEL}`,
      2,
      "`--hidden-size 1536` cannot be combined with `--model`",
      "drop",
    ],
    [`${SHAPE} --config-from paper-1.6b`, 2, "cannot be combined with `--config-from`", "drop"],
    [
      "cost --model 1.6B --config-from paper-1.6b",
      2,
      "`--config-from paper-1.6b` cannot be combined with `--model`",
    ],
    ["cost --config-from paper-1.7b", 3, 'no such file or folder: "paper-1.7b"', "1.6b"],
    ["cost --model 1.7B", 3, 'no such folder: "1.7B"', "did you mean `0.7B`?"],
    [`cost --model ${FIXTURES}data`, 3, "it has no config.json", "the file itself"],
    [`${model} --input 1M`, 2, "exceed the context", "shorten --input"],
    [`${model} --mode train --seq-len 1M`, 2, "exceed the context", "--seq-len"],
    [`${SHAPE} --seq-len 8`, 2, "`--seq-len` needs `--mode train`"],
    [`${train} --input 8`, 2, "`--input` needs `--mode infer`"],
    [`${train} --method paper`, 2, "`--method paper` cannot be combined with `--mode train`"],
    [`${train} --batch 8 --micro-batch 3`, 2, "`--micro-batch 3` does not divide `--batch 8`"],
    [
      "cost --svg x.svg -P 16",
      3,
      "no observed loss for 16 streams: the paper trained 1, 2, 4, 8",
      LAW,
    ],
    [`${model} --svg x.svg`, 3, "no observed losses for this model", LAW],
    [`${SHAPE} --streams 8..1`, 2, 'invalid value "8..1" for `--streams`'],
    [`${SHAPE} --flops-efficiency 1.5`, 2, "above 0 and at most 1"],
    ["cost ls modles", 2, 'unexpected argument "modles"'],
  ]);
});
