/** Resolving: order of sources, origins, configuration files, presets, round trip. */
import { assertEquals, assertRejects } from "@std/assert";
import { UsageError } from "../../../core/base/errors.ts";
import { parseConfig } from "../../../cli/framework/config_file.ts";
import { MisuseError } from "../../../cli/framework/misuse.ts";
import { parse } from "../../../cli/framework/parse.ts";
import { type Resolution, resolve } from "../../../cli/framework/resolve.ts";
import { commonFlags } from "../../../cli/framework/common.ts";
import type { FlagTable } from "../../../cli/framework/table.ts";
import { withScratch } from "../../scratch.ts";

const words = { summary: "S", details: "D." };
const table: FlagTable = {
  ...commonFlags,
  model: { type: "path", required: true, ...words },
  lr: { type: "number", above: 0, default: 1e-4, ...words },
  tokens: { type: "int", min: 1, ...words },
  streams: { type: "int", min: 1, list: "comma", ...words },
  "memory-limit": { type: "size", ...words },
  pack: { type: "switch", default: true, ...words },
};
const command = {
  name: "train",
  arguments: [{ name: "FILE", summary: "a file of rows" }],
  presets: { quick: { summary: "Small", values: { lr: 0.5, tokens: "4k", pack: false } } },
};

function resolved(
  args: string[],
  env: Record<string, string> = {},
  config?: string,
): Promise<Resolution> {
  return withScratch(async (scratch) => {
    const path = `${scratch}/config.json`;
    if (config !== undefined) await Deno.writeTextFile(path, config);
    const line = config === undefined ? args : [...args, "--config", path];
    return await resolve(parse(line, table), table, command, (name) => env[name]);
  });
}

async function messages(...input: Parameters<typeof resolved>): Promise<string[]> {
  const error = await assertRejects(() => resolved(...input), MisuseError) as MisuseError;
  return error.problems.map(({ message }) => message.replace(/"[^"]*config.json"/, "FILE"));
}

Deno.test("order: flag, environment, config, preset, default", async () => {
  const env = { PARSCALE_LR: "0.2" };
  const config = '{"lr": 0.3}';
  const preset = ["--model", "m", "--preset", "quick"];
  const order: [Promise<Resolution>, number, string][] = [
    [resolved([...preset, "--lr", "0.1"], env, config), 0.1, "flag"],
    [resolved(preset, env, config), 0.2, "environment"],
    [resolved(preset, {}, config), 0.3, "config"],
    [resolved(preset), 0.5, "preset"],
    [resolved(["--model", "m"]), 1e-4, "default"],
  ];
  for (const [resolution, lr, origin] of order) {
    assertEquals((await resolution).values.lr, lr);
    assertEquals((await resolution).origins.lr, origin);
  }
});

Deno.test("values are typed and absent ones undefined, lists empty", async () => {
  const { values } = await resolved(["--model", "m", "--memory-limit", "2KiB", "x", "--no-pack"]);
  assertEquals(values.memoryLimit, 2048);
  assertEquals(values.tokens, undefined);
  assertEquals(values.streams, []);
  assertEquals(values.pack, false);
  assertEquals(values.arguments, ["x"]);
});

Deno.test("an empty variable does not count; switches take words", async () => {
  const env = { PARSCALE_LR: "", PARSCALE_PACK: "0", PARSCALE_STREAMS: "1..4*2" };
  const { values, origins } = await resolved(["--model", "m"], env);
  assertEquals([values.lr, values.pack, values.streams], [1e-4, false, [1, 2, 4]]);
  assertEquals(origins.lr, "default");
});

Deno.test("a preset may be named by the environment or the config", async () => {
  assertEquals((await resolved(["--model", "m"], { PARSCALE_PRESET: "quick" })).values.lr, 0.5);
  const { values } = await resolved(["--model", "m"], {}, '{"preset": "quick", "lr": 2}');
  assertEquals([values.lr, values.tokens], [2, 4000]);
});

Deno.test("all problems of all sources are reported at once", async () => {
  const found = await messages(
    ["--lr", "0", "--tokenz", "4", "--preset", "quik", "a", "b"],
    { PARSCALE_TOKENS: "x" },
    '{"strems": [1], "streams": [0], "json": "yes", "help": true}',
  );
  assertEquals(found, [
    "unknown flag `--tokenz`",
    'invalid value "0" for `--lr`: must be a number above 0',
    'invalid value "x" for PARSCALE_TOKENS: must be an integer of at least 1',
    'unknown key "strems" in config FILE',
    'unknown key "help" in config FILE',
    'invalid value 0 for "streams" in config FILE: must be integers or ranges such as 1..8 of at least 1',
    'invalid value "yes" for "json" in config FILE: must be true or false',
    'unknown preset "quik"',
    'unexpected argument "b"',
    "`train` needs `--model`",
  ]);
});

Deno.test("a resolved config is a config: the round trip changes origins only", async () => {
  const args = ["--model", "m", "--streams", "1..8*2", "--memory-limit", "8GiB", "--no-pack", "-v"];
  const first = await resolved(args);
  const plain = await resolved([], {}, JSON.stringify(first.config));
  const document = { schema: "parscale.plan/1", command: "train", config: first.config };
  const whole = await resolved([], {}, JSON.stringify(document));
  for (const again of [plain, whole]) {
    assertEquals(again.config, first.config);
    assertEquals(again.origins.streams, "config");
  }
  assertEquals(Object.hasOwn(first.config, "dry-run"), false);
});

Deno.test("config files: shorthands, null", async () => {
  const text = '{ "lr": 2, "json": true, "tokens": null,\n "model": "a//b" }';
  const { values } = await resolved([], {}, text);
  assertEquals([values.lr, values.format, values.tokens], [2, "json", undefined]);
  assertEquals(values.model, "a//b");
});

Deno.test("config files: unreadable, malformed, for another command", async () => {
  const nowhere = () => resolved(["--config", "/nowhere.json"]);
  await assertRejects(nowhere, UsageError, "no such config file");
  for (const text of ["{", "[1]", "3", '{"schema":"s","command":"fit","config":{}}']) {
    await assertRejects(() => parseConfig(text, "c.json", "train"), UsageError, 'config "c.json"');
  }
});

Deno.test("config files may be YAML, and say so where they are not what their ending says", async () => {
  const flags = { model: "m", streams: [1, 2], lr: 0.01 };
  const yaml = "# rate\nmodel: m\nstreams: [1, 2]\nlr: 1e-2\n";
  assertEquals(await parseConfig(yaml, "c.yaml", "train"), flags);
  assertEquals(await parseConfig(yaml, "c.yml", "train"), flags);
  for (const [path, name] of [["c.json", "JSON"], ["c.yaml", "YAML"]]) {
    const words = `config "${path}" is not valid ${name}: `;
    const parse = () => parseConfig("model: [m", path!, "train");
    const { message, cause } = await assertRejects(parse, UsageError, words);
    assertEquals([message.endsWith(":"), cause], [false, undefined]);
  }
  const cyclic = () => parseConfig("streams: &a [1, *a]", "c.yaml", "train");
  await assertRejects(cyclic, UsageError, "holds itself");
  // 356 bytes that stand for 10^9 values.
  const levels = Array.from(
    { length: 9 },
    (_, i) => `l${i + 1}: &l${i + 1} [${Array(10).fill(i === 0 ? "x" : `*l${i}`).join(", ")}]`,
  );
  const bomb = () => parseConfig(levels.join("\n"), "c.yaml", "train");
  await assertRejects(bomb, UsageError, "holds more than 1000000 values");
  const many = Array.from({ length: 300_000 }, (_, i) => `k${i}: 1`).join("\n");
  await assertRejects(() => parseConfig(many, "c.yaml", "train"), UsageError, "bytes of YAML");
});

Deno.test("positional arguments: missing and not among the choices", async () => {
  const shell = {
    name: "completions",
    arguments: [{ name: "SHELL", summary: "shell", required: true, choices: ["bash", "zsh"] }],
  };
  const attempt = (args: string[]) =>
    resolve(parse(args, commonFlags), commonFlags, shell, () => undefined);
  const refused: [string[], string][] = [
    [[], "`completions` needs SHELL: one of bash, zsh"],
    [["bsh"], 'unknown SHELL "bsh": must be one of bash, zsh'],
  ];
  for (const [args, words] of refused) await assertRejects(() => attempt(args), MisuseError, words);
});

Deno.test("of many problems of one kind three are told, with one hint about quoting", async () => {
  const paths = Array.from({ length: 296 }, (_, i) => `py/${i}.py`);
  const error = await assertRejects(() => resolved(["--model", "m", "x", ...paths]), MisuseError);
  assertEquals(error.problems.map(({ message }: { message: string }) => message), [
    'unexpected argument "py/0.py"',
    'unexpected argument "py/1.py"',
    'unexpected argument "py/2.py"',
    "and 293 more",
  ]);
  assertEquals(error.hints, ['a pattern that the program is to read needs quotes: "data/*.txt"']);
});
