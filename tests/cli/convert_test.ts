/** `parscale convert` as a black box: results, round trips, refusals. */
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { copyModel, readRaw, writeRaw } from "../unit/checkpoint/testing.ts";
import {
  assertRefusals,
  assertRefused,
  jsonLines,
  MODEL,
  PLAIN_MODEL,
  rowsOf,
  succeed,
} from "./models.ts";
import { converted, names } from "./convert_testing.ts";
import { runParscale, runShell } from "./run.ts";
import { linkSync } from "../links.ts";
import { withScratch } from "../scratch.ts";

const UNTIED = PLAIN_MODEL.replace("tied-f32", "untied-bf16");

Deno.test("a conversion reports what it wrote, as a table and as JSON, and strip undoes it", () =>
  withScratch(async (cwd) => {
    const table = await runParscale(
      ["convert", "--model", UNTIED, "--streams", "4", "--out", "table"],
      { cwd },
    );
    assertEquals([table.code, table.stderr], [0, ""]);
    const rows = table.stdout.trim().split("\n").map((line) => line.split(/ {2,}/));
    const shown = Object.fromEntries(rows);
    const results = await converted(cwd, "--model", UNTIED, "-P", "4", "-o", "json");
    for (const key of ["introduced_params", "tensors", "bytes", "backbone_sha256"]) {
      assertEquals(shown[key], String(results[key]), key);
    }
    assertEquals(results.streams, 4);
    assertEquals(typeof results.introduced_params, "number");
    assertEquals(names(`${cwd}/json`), results.files.toSorted());
    const same = await Promise.all(
      ["table", "json"].map((name) => Deno.readFile(`${cwd}/${name}/model.safetensors`)),
    );
    assertEquals(same[0], same[1]);

    const back = await converted(cwd, "--model", "json", "--strip", "--out", "back");
    assertEquals(back.backbone_sha256, results.backbone_sha256);
    assertEquals([back.introduced_params, back.streams, back.prefix_tokens], [0, 1, 0]);
    const source = readRaw(`${UNTIED}/model.safetensors`);
    const stripped = readRaw(`${cwd}/back/model.safetensors`);
    for (const [name, entry] of Object.entries(source.header)) {
      if (name === "__metadata__") continue;
      const [from, to] = entry.data_offsets, [begin, end] = stripped.header[name].data_offsets;
      assertEquals(stripped.data.subarray(begin, end), source.data.subarray(from, to), name);
    }
    assertEquals(names(cwd), ["back", "json", "table"]);
  }));

Deno.test("without --out the folder is named after the model and what is made of it", () =>
  withScratch(async (cwd) => {
    linkSync(PLAIN_MODEL, `${cwd}/qwen`);
    linkSync(MODEL, `${cwd}/two@1`);
    const made = async (...args: string[]) => (await converted(cwd, ...args)).out;
    assertEquals(await made("qwen", "-P", "4"), "qwen-p4");
    assertEquals(await made("qwen/", "-P", "4", "--introduced-only"), "qwen-p4-adapter");
    assertEquals(await made("qwen", "--quantize", "q4"), "qwen-q4");
    assertEquals(await made("two@1", "--strip"), "two-plain");
    const again = await runParscale(["convert", "qwen", "-P", "4"], { cwd });
    assertRefused(again, 2, '"qwen-p4" already exists');
  }));

Deno.test("jq reads the document of a conversion", () =>
  withScratch(async (cwd) => {
    const line = `parscale convert --model ${PLAIN_MODEL} --streams 4 --json --out a`;
    const piped = await runShell(`${line} | jq -r .results.introduced_params`, { cwd });
    assertEquals([piped.code, piped.stderr], [0, ""]);
    assert(Number(piped.stdout) > 0);
  }));

Deno.test("a dry run writes nothing and prints a config that repeats it", () =>
  withScratch(async (cwd) => {
    const args = ["convert", "--model", PLAIN_MODEL, "--out", "out", "--streams", "2"];
    const text = await succeed([...args, "--dry-run"], { cwd });
    assertStringIncludes(text, "ParScale parameters: ");
    const plan = await runParscale([...args, "--seed", "5", "--dry-run", "--json"], { cwd });
    assertEquals(names(cwd), []);
    await Deno.writeTextFile(`${cwd}/plan.json`, plan.stdout);
    await succeed(["convert", "--config", "plan.json"], { cwd });
    await converted(cwd, ...args.slice(1, -4), "--out", "direct", "--streams", "2", "--seed", "5");
    const [one, two] = ["out", "direct"].map((name) => readRaw(`${cwd}/${name}/model.safetensors`));
    assertEquals(one, two);
    const refused = ["convert", "--model", "none", "--out", "x", "--streams", "2", "--dry-run"];
    assertEquals((await runParscale(refused, { cwd })).code, 3);
  }));

Deno.test("an adapter over its backbone is the converted model to the last digit", () =>
  withScratch(async (cwd) => {
    const how = ["--model", UNTIED, "--streams", "2", "--prefix-tokens", "8", "--seed", "3"];
    const full = await converted(cwd, ...how, "--out", "full", "--max-shard-size", "60KiB");
    const adapter = await converted(cwd, ...how, "--out", "adapter", "--introduced-only");
    assertEquals(adapter.backbone_sha256, full.backbone_sha256);
    assertEquals(adapter.introduced_params, full.introduced_params);
    assert(adapter.tensors < full.tensors);
    const stdin = jsonLines({ tokens: [1, 2, 3, 5, 8] }, { tokens: [13, 21] });
    const score = (...model: string[]) =>
      rowsOf(["score", ...model, "--stream-weights"], { cwd, stdin });
    const over = ["--model", UNTIED, "--adapter", "adapter"];
    assertEquals(await score(...over), await score("--model", "full"));
    const inspect = async (...model: string[]) => {
      const [{ files: _, ...rest }] = await rowsOf(["inspect", ...model, "--check"], { cwd });
      return rest;
    };
    assertEquals(await inspect(...over), await inspect("--model", "full"));
  }));

Deno.test("streams without prefix tokens score as the plain model does", () =>
  withScratch(async (cwd) => {
    const how = ["--streams", "4", "--prefix-tokens", "0", "--out", "same"];
    const { prefix_tokens, streams } = await converted(cwd, "--model", UNTIED, ...how);
    assertEquals([prefix_tokens, streams], [0, 4]);
    const { parscale_transforms } = JSON.parse(await Deno.readTextFile(`${cwd}/same/config.json`));
    assertEquals(parscale_transforms, []);
    const stdin = jsonLines({ tokens: [3, 14, 15, 9, 26, 5, 35] });
    const scores = async (model: string) => {
      const [row] = await rowsOf(["score", "--model", model, "--jsonl"], { cwd, stdin });
      return row.token_logprobs as number[];
    };
    const [plain, same] = [await scores(UNTIED), await scores("same")];
    assertEquals(plain.length, 6);
    for (const [i, x] of plain.entries()) assertAlmostEquals(same[i]!, x, 1e-5);
  }));

Deno.test("the seed decides the new tensors and nothing else; --verify reads back", () =>
  withScratch(async (cwd) => {
    const bytes: Uint8Array[] = [], hashes = new Set<string>();
    for (const seed of ["0", "1", "0"]) {
      const out = `out${bytes.length}`, model = ["--model", PLAIN_MODEL, "--verify"];
      const results = await converted(cwd, ...model, "--out", out, "-P", "2", "--seed", seed);
      hashes.add(results.backbone_sha256);
      bytes.push(await Deno.readFile(`${cwd}/${out}/model.safetensors`));
    }
    assertEquals(hashes.size, 1);
    assertEquals(bytes[0], bytes[2]);
    assert(bytes[0]!.some((byte, i) => byte !== bytes[1]![i]));
  }));

Deno.test("convert --overwrite replaces a checkpoint, and refuses any other folder", () =>
  withScratch(async (cwd) => {
    const args = ["convert", "--model", PLAIN_MODEL, "--streams", "2", "--out", "out"];
    await Deno.mkdir(`${cwd}/out`);
    await Deno.writeTextFile(`${cwd}/out/mine`, "");
    const refused = await runParscale(args, { cwd });
    assertRefused(refused, 2, '"out" already exists');
    assertStringIncludes(
      refused.stderr,
      "\n\nhint: pass `--overwrite`, or choose another `--out`\n",
    );
    assertEquals(names(`${cwd}/out`), ["mine"]);
    const foreign = await runParscale([...args, "--overwrite"], { cwd });
    const reason = '"out" holds "mine", which is not part of a checkpoint: it is not replaced';
    assertRefused(foreign, 2, reason);
    assertEquals(names(`${cwd}/out`), ["mine"]);
    await Deno.remove(`${cwd}/out/mine`);
    await converted(cwd, ...args.slice(1), "--seed", "1");
    const before = await Deno.readFile(`${cwd}/out/model.safetensors`);
    await converted(cwd, ...args.slice(1), "--overwrite");
    const after = await Deno.readFile(`${cwd}/out/model.safetensors`);
    assert(before.some((byte, i) => byte !== after[i]), "the folder was replaced");
    assertEquals(names(cwd), ["out"]);
    await Deno.writeTextFile(`${cwd}/file`, "");
    const file = await runParscale([...args, "--out", "file"].toSpliced(5, 2), { cwd });
    assertRefused(file, 2, '"file" already exists and is a file');
  }));

Deno.test("misuse ends with 2, says everything that is wrong, and writes nothing", () =>
  withScratch(async (cwd) => {
    const line = `convert --model ${PLAIN_MODEL} --out out`;
    const strip = `convert --model ${MODEL} --out out --strip`;
    const between = (flag: string, value: string, low: number, high: number) =>
      `invalid value "${value}" for \`${flag}\`: must be an integer from ${low} to ${high}`;
    const combined = (flag: string) => `\`--strip\` cannot be combined with \`${flag}\``;
    await assertRefusals([
      ["convert", 2, "`convert` needs `--model`"],
      [line, 2, "`convert` needs `--streams`, `--strip`, `--merge` or `--quantize`"],
      [`${line} -P 1`, 2, between("--streams", "1", 2, 64)],
      [
        `${line} -P 65 --prefix-tokens -1`,
        2,
        between("--streams", "65", 2, 64),
        between("--prefix-tokens", "-1", 0, 4096),
      ],
      [`${line} -P 2 --smoothing 1.5`, 2, '"1.5" for `--smoothing`: must be a number'],
      [`${line} -P 2 --seed -1`, 2, 'invalid value "-1" for `--seed`'],
      [`${line} -P 2 --max-shard-size 0`, 2, '"0" for `--max-shard-size`'],
      [`${line} -P two`, 2, 'invalid value "two" for `--streams`'],
      [`${strip} -P 2`, 2, combined("--streams")],
      [`${strip} --hf-code code`, 2, combined("--hf-code")],
      [`${strip} --introduced-only`, 2, combined("--introduced-only")],
      [
        `convert --model ${PLAIN_MODEL} --out ${PLAIN_MODEL} -P 2 --overwrite`,
        2,
        "holds the model to convert",
      ],
      [`${line} -P 2 --steams 3`, 2, "unknown flag `--steams`"],
    ], { cwd });
    assertEquals(names(cwd), []);
  }));

/** Makes a model that something is wrong with in `folder`. */
type Damage = (folder: string) => void;

/** Changes the weight file of a copied model. */
const withWeights = (change: (path: string) => void): Damage => (folder) => {
  copyModel("qwen2-p1-tied-f32", folder);
  change(`${folder}/model.safetensors`);
};

/** One of each kind; what is refused when a folder is opened has tests beside that. */
const BAD_DATA: readonly (readonly [what: string, damage: Damage, code: number, words: string])[] =
  [
    ["no folder", () => {}, 3, "no such folder"],
    [
      "a truncated file",
      withWeights((path) => Deno.truncateSync(path, 9000)),
      3,
      ", and the file has 9000\n",
    ],
    [
      "a NaN",
      withWeights((path) => {
        const { header, data } = readRaw(path);
        const begin = header["model.norm.weight"].data_offsets[0];
        data.fill(0xff, begin + 8, begin + 12);
        writeRaw(path, header, data);
      }),
      5,
      "tensor model.norm.weight in ",
    ],
    [
      "streams already",
      (folder) => copyModel("qwen2-p2-tied-f32", folder),
      3,
      '"./model" already is a ParScale model with 2 streams',
    ],
  ];

Deno.test("bad data is refused by name with one hint's worth of help, and nothing is written", () =>
  withScratch(async (cwd) => {
    const args = ["convert", "--model", "./model", "--streams", "2", "--out", "out"];
    for (const [what, damage, code, words] of BAD_DATA) {
      damage(`${cwd}/model`);
      const result = await runParscale(args, { cwd });
      assertEquals([result.code, result.stdout], [code, ""], `${what}: ${result.stderr}`);
      assertStringIncludes(result.stderr, words);
      assert(
        /^error: [^A-Z\n][^\n]*[^.\n]\n\n(hint: [^A-Z\n][^\n]+\n)+$/.test(
          result.stderr,
        ),
        `${what}: ${result.stderr}`,
      );
      assert(!names(cwd).some((name) => name.includes("out")), what);
      await Deno.remove(`${cwd}/model`, { recursive: true }).catch(() => {});
    }
  }));

Deno.test("--aggregation linear says who cannot open it; eval, cost, export and inspect can", () =>
  withScratch(async (cwd) => {
    const args = ["convert", "--model", PLAIN_MODEL, "-P", "2", "--aggregation", "linear"];
    const { code, stderr } = await runParscale([...args, "--out", "linear"], { cwd });
    assertEquals(code, 0, stderr);
    assertStringIncludes(stderr, "cannot open a linear aggregation");
    await Deno.writeTextFile(`${cwd}/book.txt`, "Once upon a time there was a model. ");
    for (
      const line of [
        "inspect --model linear --json",
        "eval --model linear --tasks perplexity --data book.txt --json",
        "cost --model linear --json",
        "export --model linear --onnx --out onnx --json",
        "bench --model linear --what decode --context 4 --rounds 1 --steps 1 --json",
      ]
    ) {
      const result = await runParscale(line.split(" "), { cwd });
      assertEquals(result.code, 0, `${line}: ${result.stderr}`);
      if (!line.startsWith("inspect")) continue;
      assertEquals(JSON.parse(result.stdout).results.aggregation, "linear");
    }
  }));

Deno.test("--strip of a plain model copies it and says so", () =>
  withScratch(async (cwd) => {
    const args = ["convert", "--model", PLAIN_MODEL, "--strip", "--out", "out"];
    const { code, stderr } = await runParscale(args, { cwd });
    assertEquals(code, 0, stderr);
    assertStringIncludes(stderr, "is a plain model already; out is a copy of it");
    const [from, to] = [PLAIN_MODEL, `${cwd}/out`].map((folder) => ({
      config: JSON.parse(Deno.readTextFileSync(`${folder}/config.json`)),
      weights: readRaw(`${folder}/model.safetensors`),
    }));
    assertEquals(to!.config, from!.config);
    for (const [name, entry] of Object.entries(from!.weights.header)) {
      if (name === "__metadata__") continue;
      const [begin, end] = entry.data_offsets;
      const [first, last] = to!.weights.header[name].data_offsets;
      assertEquals(to!.weights.data.subarray(first, last), from!.weights.data.subarray(begin, end));
    }
  }));

Deno.test("--max-shard-size takes units as Hugging Face writes them", () =>
  withScratch(async (cwd) => {
    const args = ["--model", PLAIN_MODEL, "--streams", "2", "--max-shard-size", "60KB"];
    const results = await converted(cwd, ...args, "--out", "sharded");
    assert(results.files.includes("model-00002-of-00008.safetensors"), results.files.join());
  }));

Deno.test("a target that takes no folder is the environment's fault", () =>
  withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/file`, "");
    const line = `convert --model ${PLAIN_MODEL} --streams 2 --out`,
      hint = "hint: choose another folder";
    const cannot = (out: string) => `error: cannot write folder "${out}": `;
    await assertRefusals([
      [
        `${line} /proc/parscale-out`,
        4,
        `${cannot("/proc/parscale-out")}it cannot be created`,
        hint,
      ],
      [
        `${line} file/out`,
        4,
        `${cannot("file/out")}part of the path is a file, not a folder`,
        hint,
      ],
    ], { cwd });
  }));
