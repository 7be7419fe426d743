/** Splitting an argument list: every trap of the tokenizer, letters, lists, suggestions, types. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { parse } from "../../../cli/framework/parse.ts";
import { editDistance, nearest, suggestionHint } from "../../../cli/framework/suggest.ts";
import { camelCase, environmentName, type FlagTable } from "../../../cli/framework/table.ts";
import { commonFlags } from "../../../cli/framework/common.ts";

const words = { summary: "S", details: "D." };
const table = {
  ...commonFlags,
  model: { type: "path", required: true, ...words },
  prompt: { type: "string", ...words },
  lr: { type: "number", ...words },
  "max-tokens": { type: "int", default: 64, ...words },
  streams: { type: "int", list: "comma", letter: "P", ...words },
  threads: { type: "int", letter: "j", ...words },
  stop: { type: "string", list: "repeat", ...words },
  data: { type: "string", list: "several", ...words },
  schedule: { type: "choice", choices: ["cosine", "constant"], default: "cosine", ...words },
  deterministic: { type: "switch", ...words },
  pack: { type: "switch", default: true, ...words },
} as const satisfies FlagTable;

function given(...args: string[]): Record<string, readonly string[]> {
  const parsed = parse(args, table);
  assertEquals(parsed.problems, []);
  return Object.fromEntries([...parsed.given].map(([name, texts]) => [name, [texts].flat()]));
}

function problems(...args: string[]): string[] {
  return parse(args, table).problems.map(({ message }) => message);
}

Deno.test("value after a space or an equals sign", () => {
  assertEquals(given("--model", "run"), { model: ["run"] });
  assertEquals(given("--model=run"), { model: ["run"] });
  assertEquals(given("--prompt=2+2="), { prompt: ["2+2="] });
  assertEquals(given("--prompt", "a\nb=c"), { prompt: ["a\nb=c"] });
});

Deno.test("trap: text that looks like a number stays text", () => {
  assertEquals(given("--prompt", "0x10", "--model", "007"), { prompt: ["0x10"], model: ["007"] });
  assertEquals(parse(["007", "1e3"], table).positionals, ["007", "1e3"]);
});

Deno.test("trap: negative numbers and a lone dash are values", () => {
  assertEquals(given("--lr", "-1"), { lr: ["-1"] });
  assertEquals(given("--lr", "-.5"), { lr: ["-.5"] });
  const dash = parse(["--model", "-", "rest"], table);
  assertEquals(dash.given.get("model"), "-");
  assertEquals(dash.positionals, ["rest"]);
  assertEquals(given("-o", "-"), { out: ["-"] });
  assertEquals(given("--prompt", "- item"), { prompt: ["- item"] });
});

Deno.test("trap: a missing or empty value is misuse", () => {
  const message = "`--model` needs a value: a path";
  assertEquals(problems("--model"), [message]);
  assertEquals(problems("--model="), [message]);
  assertEquals(problems("--model", ""), [message]);
  assertEquals(problems("--model", "--json"), [message]);
  assertEquals(problems("--model", "--"), [message]);
  assertStringIncludes(parse(["--prompt", "-x"], table).problems[0]!.hint!, "--prompt=-x");
  assertEquals(given("--prompt=--json"), { prompt: ["--json"] });
});

Deno.test("trap: the last of a repeated scalar wins, a repeated list collects", () => {
  assertEquals(given("--lr", "1", "--lr", "2"), { lr: ["2"] });
  assertEquals(given("--deterministic", "--deterministic=false"), { deterministic: ["false"] });
  assertEquals(given("--json", "--format", "csv"), { format: ["csv"] });
  assertEquals(given("--streams", "1,2", "--streams=4"), { streams: ["1,2", "4"] });
  assertEquals(given("--stop", "a", "--stop", "b"), { stop: ["a", "b"] });
});

Deno.test("trap: only switches that are on by default have a --no form", () => {
  assertEquals(given("--no-pack"), { pack: ["false"] });
  assertEquals(given("--pack"), { pack: ["true"] });
  assertEquals(given("--deterministic=false"), { deterministic: ["false"] });
  assertEquals(problems("--no-deterministic"), ["unknown flag `--no-deterministic`"]);
  assertEquals(problems("--no-model=x"), ["unknown flag `--no-model`"]);
  assertEquals(parse(["--no-model=x"], table).given.has("model"), false);
  assertEquals(problems("--no-pack=1"), ["`--no-pack` takes no value"]);
});

Deno.test("trap: a switch does not eat the argument behind it", () => {
  const parsed = parse(["--deterministic", "true", "false"], table);
  assertEquals(parsed.given.get("deterministic"), "true");
  assertEquals(parsed.positionals, ["true", "false"]);
});

Deno.test("trap: dotted and inherited names do not nest", () => {
  for (const flag of ["--model.path", "--__proto__", "--constructor", "--_", "--__proto__.x"]) {
    assertEquals(problems(`${flag}=1`), [`unknown flag \`${flag}\``]);
  }
  assertEquals(({} as Record<string, unknown>).x, undefined);
});

Deno.test("letters: attached, spaced, with equals sign and clustered", () => {
  for (const args of [["-P8"], ["-P", "8"], ["-P=8"]]) {
    assertEquals(given(...args), { streams: ["8"] });
  }
  assertEquals(given("-P", "1..8*2"), { streams: ["1..8*2"] });
  assertEquals(given("-oout.json"), { out: ["out.json"] });
  assertEquals(given("-vqj", "4"), { verbose: ["true"], quiet: ["true"], threads: ["4"] });
  assertEquals(given("-vv"), { verbose: ["2"] });
  assertEquals(given("-v", "--verbose"), { verbose: ["2"] });
});

Deno.test("letters: unknown ones, also for a long name with one dash", () => {
  const [problem] = parse(["-model=x"], table).problems;
  assertEquals(problem!.message, 'unknown flag `-m` in "-model=x"');
  assertEquals(problem!.hint, "did you mean `--model=x`?");
  assertEquals(problems("-x"), ["unknown flag `-x`"]);
});

Deno.test("flags stand anywhere and -- ends them", () => {
  const parsed = parse(["a", "--lr", "1", "b", "--", "--lr", "-", "--"], table);
  assertEquals(parsed.given.get("lr"), "1");
  assertEquals(parsed.positionals, ["a", "b", "--lr", "-", "--"]);
});

Deno.test("shorthands spell the flag they stand for", () => {
  assertEquals(given("--jsonl"), { format: ["jsonl"] });
  assertEquals(problems("--json=yes"), ["`--json` takes no value"]);
});

Deno.test("help has two forms, the full one wins", () => {
  assertEquals(parse(["-h"], table).help, "short");
  assertEquals(parse(["--help", "-h"], table).help, "full");
  assertEquals(parse(["-h", "--help"], table).help, "full");
  assertEquals(parse(["--", "-h"], table).help, undefined);
});

Deno.test("flags of other programs get the name that they have here", () => {
  const names = ["temperature", "max-tokens", "steps", "quantize"];
  const text = { type: "string", ...words } as const;
  const table: FlagTable = Object.fromEntries(names.map((name) => [name, text]));
  const hint = (flag: string) => parse([flag], table).problems[0]!.hint;
  assertEquals(hint("--temp=1"), "did you mean `--temperature`?");
  assertEquals(hint("--max_new_tokens"), "did you mean `--max-tokens`?");
  assertEquals(hint("--iters=9"), "did you mean `--steps`?");
  assertEquals(hint("--load-in-4bit"), "did you mean `--quantize q4`?");
  assertEquals(hint("--ctx-size=9"), "known: --temperature, --max-tokens, --steps, --quantize");
});

Deno.test("no abbreviations; all unknown flags are reported with the nearest name", () => {
  const parsed = parse(["--mod", "x", "--max_tokens=3", "--xyzzy"], table);
  assertEquals(parsed.problems.map(({ message }) => message), [
    "unknown flag `--mod`",
    "unknown flag `--max_tokens`",
    "unknown flag `--xyzzy`",
  ]);
  assertEquals(parsed.problems[1]!.hint, "did you mean `--max-tokens`?");
  assertEquals(parsed.problems[2]!.hint, "`--help` lists the flags");
});

Deno.test("edit distance counts swapped neighbours as one slip", () => {
  assertEquals(editDistance("", "abc"), 3);
  assertEquals(editDistance("kitten", "sitting"), 3);
  assertEquals(editDistance("socre", "score"), 1);
  assertEquals(nearest("genrate", ["score", "generate"]), "generate");
  assertEquals(nearest("zzz", ["score", "generate"]), undefined);
  assertEquals(nearest("gpu", ["auto", "cpu"]), undefined, "another word is no slip");
  assertEquals(suggestionHint("cpuu", ["auto", "cpu"]), "did you mean `cpu`?");
  assertEquals(suggestionHint("zzzz", ["auto", "cpu"]), "known: auto, cpu");
});

Deno.test("names in code and environment follow from the long name", () => {
  assertEquals(camelCase("max-shard-size"), "maxShardSize");
  assertEquals(environmentName("max-tokens", table["max-tokens"]), "PARSCALE_MAX_TOKENS");
  assertEquals(environmentName("help", table.help), undefined);
  assertEquals(environmentName("json", table.json), undefined);
});

Deno.test("a flag of several values takes them up to the next flag, as a shell writes a pattern out", () => {
  const args = ["--data", "a.py", "b.py", "-", "--lr", "1", "--data=c", "--data", "d", "--", "x"];
  const { given, positionals } = parse(args, table);
  assertEquals(given.get("data"), ["a.py", "b.py", "-", "c", "d"]);
  assertEquals(positionals, ["x"]);
});
