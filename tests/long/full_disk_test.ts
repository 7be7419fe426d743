/** Every command that writes, on a disk that is full or becomes so. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { MODEL, PLAIN_MODEL } from "../cli/models.ts";
import { canMount, runMounting } from "../cli/small_disk.ts";
import { withScratch } from "../scratch.ts";
import { FIXTURES } from "../fixtures.ts";

const DATA = `${FIXTURES}eval/data`;

/** Command lines that write into the folder `disk`. */
const COMMANDS = [
  `convert -m ${PLAIN_MODEL} --streams 2 --out disk/p2`,
  `convert -m ${PLAIN_MODEL} --quantize q8 --out disk/q8`,
  `train -m ${MODEL} --data rows.jsonl --seq-len 16 --steps 2 --out disk/run`,
  `eval -m ${MODEL} --tasks gsm8k --shots 0 --limit 3 --max-tokens 8 --data ${DATA} --out disk/eval`,
  `compare -m ${PLAIN_MODEL} --parscale ${MODEL} --beams 2 --tasks gsm8k --shots 0 --limit 2 --max-tokens 8 --data ${DATA} --out disk/table`,
  `generate -m ${MODEL} --prompt a --max-tokens 4 --jsonl --out disk/texts.jsonl`,
  `score rows.jsonl -m ${MODEL} --jsonl --out disk/scores.jsonl`,
  `export -m ${MODEL} --out disk/onnx`,
  `visualize -m ${MODEL} --text 'a b c' --html disk/page.html`,
  `cost --method paper --svg disk/cost.svg`,
  `bench -m ${MODEL} --rounds 1 --out disk/bench.json`,
  `plot metrics --svg disk/losses.svg`,
  `inspect -m ${MODEL} --json --out disk/inspect.json`,
];

const STEPS = [1, 2, 3].map((step) =>
  JSON.stringify({ step, loss: 3 - step / 4, tokens: 64 * step, lr: 1e-3, step_s: 1 })
).join("\n");

Deno.test({
  name: "a full disk ends every command that writes with 4 and the path",
  ignore: !canMount,
  fn: () =>
    withScratch(async (cwd) => {
      const rows = Array.from({ length: 8 }, (_, i) => ({
        tokens: Array.from({ length: 16 }, (_, t) => (i * 7 + t * 3) % 200),
      }));
      await Deno.writeTextFile(`${cwd}/rows.jsonl`, rows.map((r) => JSON.stringify(r)).join("\n"));
      await Deno.mkdir(`${cwd}/metrics`);
      await Deno.writeTextFile(`${cwd}/metrics/metrics.jsonl`, `${STEPS}\n`);
      await Deno.mkdir(`${cwd}/disk`);
      for (const free of [0, 4, 12]) {
        const lines = COMMANDS.flatMap((command, i) => [
          "rm -rf disk/*; head -c 4M /dev/zero > disk/.filler 2>/dev/null",
          `truncate -s -${free}K disk/.filler`,
          `parscale ${command} -q > out 2> err${i}; echo $?`,
        ]);
        const before = [
          "export PARSCALE_CACHE=$PWD/cache",
          "mount -t tmpfs -o size=128k none disk",
        ];
        const { stdout, stderr } = await runMounting([...before, ...lines].join("\n"), cwd);
        const codes = stdout.trim().split("\n");
        assertEquals(codes.length, COMMANDS.length, stderr);
        COMMANDS.forEach((command, i) => {
          const said = Deno.readTextFileSync(`${cwd}/err${i}`);
          const what = `${free} KiB free, ${command}: ${codes[i]} ${said}`;
          if (free > 0 && codes[i] === "0") return; // it fits
          assertEquals(codes[i], "4", what);
          assertStringIncludes(said, "disk/", what);
          assert(/the disk is full|no space left/.test(said), what);
        });
      }
    }),
});
