/** Splitting an argument list: every trap of the tokenizer, letters, lists, suggestions, types. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { parse } from "../../../cli/framework/parse.ts";
import {
  editDistance,
  nearest,
  peerCommandHint,
  suggestionHint,
} from "../../../cli/framework/suggest.ts";
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

/** Arguments, the flags that they give, and what remains. */
const ACCEPTED: readonly (readonly [
  what: string,
  args: string[],
  flags: Record<string, string[]>,
  positionals?: string[],
])[] = [
  ["a value after a space", ["--model", "run"], { model: ["run"] }],
  ["a value after an equals sign", ["--model=run"], { model: ["run"] }],
  ["equals signs in a value", ["--prompt=2+2="], { prompt: ["2+2="] }],
  ["a value of two lines", ["--prompt", "a\nb=c"], { prompt: ["a\nb=c"] }],
  ["a value that is a flag", ["--prompt=--json"], { prompt: ["--json"] }],
  ["text like a number", ["--prompt", "0x10", "--model", "007"], {
    prompt: ["0x10"],
    model: ["007"],
  }],
  ["positionals like numbers", ["007", "1e3"], {}, ["007", "1e3"]],
  ["a negative number", ["--lr", "-1"], { lr: ["-1"] }],
  ["a negative number without a zero", ["--lr", "-.5"], { lr: ["-.5"] }],
  ["a lone dash", ["--model", "-", "rest"], { model: ["-"] }, ["rest"]],
  ["a lone dash behind a letter", ["-o", "-"], { out: ["-"] }],
  ["text behind a dash", ["--prompt", "- item"], { prompt: ["- item"] }],
  ["the last of a repeated scalar", ["--lr", "1", "--lr", "2"], { lr: ["2"] }],
  ["the last of a repeated switch", ["--deterministic", "--deterministic=false"], {
    deterministic: ["false"],
  }],
  ["the last of shorthand and flag", ["--json", "--format", "csv"], { format: ["csv"] }],
  ["all of a repeated list", ["--streams", "1,2", "--streams=4"], { streams: ["1,2", "4"] }],
  ["all of repeated texts", ["--stop", "a", "--stop", "b"], { stop: ["a", "b"] }],
  ["a switch off", ["--no-pack"], { pack: ["false"] }],
  ["a switch on", ["--pack"], { pack: ["true"] }],
  ["a switch by a value", ["--deterministic=false"], { deterministic: ["false"] }],
  ["a switch that eats no argument", ["--deterministic", "true", "false"], {
    deterministic: ["true"],
  }, ["true", "false"]],
  ["a letter with its value", ["-P8"], { streams: ["8"] }],
  ["a letter and its value", ["-P", "8"], { streams: ["8"] }],
  ["a letter, an equals sign and its value", ["-P=8"], { streams: ["8"] }],
  ["a range behind a letter", ["-P", "1..8*2"], { streams: ["1..8*2"] }],
  ["a path at a letter", ["-oout.json"], { out: ["out.json"] }],
  ["clustered letters", ["-vqj", "4"], { verbose: ["true"], quiet: ["true"], threads: ["4"] }],
  ["a letter that counts", ["-vv"], { verbose: ["2"] }],
  ["a letter and a name that count", ["-v", "--verbose"], { verbose: ["2"] }],
  ["a shorthand", ["--jsonl"], { format: ["jsonl"] }],
  [
    "flags anywhere before --",
    ["a", "--lr", "1", "b", "--", "--lr", "-", "--"],
    { lr: ["1"] },
    ["a", "b", "--lr", "-", "--"],
  ],
  [
    "several values up to the next flag, as a shell writes a pattern out",
    ["--data", "a.py", "b.py", "-", "--lr", "1", "--data=c", "--data", "d", "--", "x"],
    { data: ["a.py", "b.py", "-", "c", "d"], lr: ["1"] },
    ["x"],
  ],
];

for (const [what, args, flags, positionals = []] of ACCEPTED) {
  Deno.test(`arguments give ${what}`, () => {
    const parsed = parse(args, table);
    assertEquals(parsed.problems, []);
    const given = [...parsed.given].map(([name, texts]) => [name, [texts].flat()]);
    assertEquals(Object.fromEntries(given), flags);
    assertEquals(parsed.positionals, positionals);
  });
}

function problems(...args: string[]): string[] {
  return parse(args, table).problems.map(({ message }) => message);
}

Deno.test("a missing or empty value is misuse", () => {
  const values = [["--model"], ["--model="], ["--model", ""], ["--model", "--json"]];
  for (const args of [...values, ["--model", "--"]]) {
    assertEquals(problems(...args), ["`--model` needs a value: a path"]);
  }
  assertStringIncludes(parse(["--prompt", "-x"], table).problems[0]!.hint!, "--prompt=-x");
});

Deno.test("switches that are on by default alone have a --no form, which has no value", () => {
  assertEquals(problems("--no-deterministic"), ["unknown flag `--no-deterministic`"]);
  assertEquals(problems("--no-model=x"), ["unknown flag `--no-model`"]);
  assertEquals(parse(["--no-model=x"], table).given.has("model"), false);
  assertEquals(problems("--no-pack=1"), ["`--no-pack` takes no value"]);
  assertEquals(problems("--json=yes"), ["`--json` takes no value"]);
});

Deno.test("dotted and inherited names do not nest", () => {
  for (const flag of ["--model.path", "--__proto__", "--constructor", "--_", "--__proto__.x"]) {
    assertEquals(problems(`${flag}=1`), [`unknown flag \`${flag}\``]);
  }
  assertEquals(({} as Record<string, unknown>).x, undefined);
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
  assertEquals(hint("--list-tasks"), "did you mean `eval ls`?");
  assertEquals(hint("--list_tasks"), "did you mean `eval ls`?");
  assertEquals(hint("--ctx-size=9"), "known: --temperature, --max-tokens, --steps, --quantize");
});

Deno.test("commands and letters of other programs get the name that they have here", () => {
  assertEquals(peerCommandHint("run"), "did you mean `chat`?");
  assertEquals(peerCommandHint("list"), "did you mean `eval ls`?");
  assertEquals(peerCommandHint("pull"), "did you mean `inspect --model OWNER/NAME`?");
  assertEquals(peerCommandHint("frobnicate"), undefined);
  const flag = { type: "int", ...words } as const;
  const hint = (name: string) => parse(["-n", "3"], { [name]: flag }).problems[0]!.hint;
  assertEquals(hint("max-tokens"), "did you mean `--max-tokens`?");
  assertEquals(hint("limit"), "did you mean `--limit`?");
});

Deno.test("unknown letters are named, also those of a long name with one dash", () => {
  const [problem] = parse(["-model=x"], table).problems;
  assertEquals(problem!.message, 'unknown flag `-m` in "-model=x"');
  assertEquals(problem!.hint, "did you mean `--model=x`?");
  assertEquals(problems("-x"), ["unknown flag `-x`"]);
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
  assertEquals(nearest("gpu", ["auto", "cpu"]), undefined, "another word is not a slip");
  assertEquals(suggestionHint("cpuu", ["auto", "cpu"]), "did you mean `cpu`?");
  assertEquals(suggestionHint("zzzz", ["auto", "cpu"]), "known: auto, cpu");
});

Deno.test("names in code and environment follow from the long name", () => {
  assertEquals(camelCase("max-shard-size"), "maxShardSize");
  assertEquals(environmentName("max-tokens", table["max-tokens"]), "PARSCALE_MAX_TOKENS");
  assertEquals(environmentName("help", table.help), undefined);
  assertEquals(environmentName("json", table.json), undefined);
});
