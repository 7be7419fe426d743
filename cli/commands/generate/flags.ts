/** `parscale generate`: prompts in, completions out. */
import { engineFlags, rowFlags, shardFlag } from "../../framework/common.ts";
import {
  chatTemplateFlag,
  keptQuantizeFlags,
  modelArgument,
  modelFlags,
  templateVarFlag,
} from "../../input/model_flags.ts";
import { defineCommand } from "../../framework/command.ts";
import {
  maxTokensFlag,
  speculateFlag,
  temperatureFlag,
  topPFlag,
} from "../../input/decoding_flags.ts";
import { flagGroup } from "../../framework/table.ts";

/** Returns whether an argument is FILE rather than a prompt. */
function namesInput(text: string): boolean {
  try {
    return text === "-" || Deno.statSync(text).isFile;
  } catch {
    return false;
  }
}

export const command = defineCommand({
  description:
    "Prompts come from --prompt, from FILE, or from stdin. Input whose first character is { is " +
    "read as JSON lines with `prompt`, `messages` or `tokens`; any other is one prompt as it " +
    "stands (--input decides otherwise). One prompt is answered as plain text while it is " +
    "produced; several, or any other format, give one row each, in input order. With --jsonl early " +
    "rows are answered while later ones are still being read.\n\n" +
    "Without sampling flags decoding is greedy. Every prompt draws from a random stream of its " +
    "own, so a result does not depend on its neighbours.",
  examples: {
    "Continue a text": 'parscale generate --model qwen-p4 --prompt "The capital of France is"',
    "Answer many prompts, 8 bits a weight":
      "parscale generate --model qwen-p4 --quantize q8 --jsonl < prompts.jsonl",
    "Sample three answers to a question":
      'parscale generate --model qwen-p4 --chat --prompt "Why is the sky blue?" ' +
      "--temperature 0.8 --top-p 0.95 --num-return 3 --json",
  },
  arguments: [
    modelArgument,
    {
      name: "PROMPT",
      summary: "the prompt, after MODEL, unless a file has this name",
      sets: "prompt",
      passes: namesInput,
    },
    { name: "FILE", summary: "prompts; stdin when absent or -" },
  ],
  flags: {
    ...modelFlags,
    ...chatTemplateFlag,
    ...templateVarFlag,
    prompt: {
      type: "string",
      letter: "p",
      list: "repeat",
      group: "Input",
      conflictsWith: ["FILE"],
      summary: "A prompt; may be repeated",
      details: "Takes the place of FILE and stdin.",
    },
    ...flagGroup("Input", {
      input: {
        type: "choice",
        choices: ["auto", "text", "jsonl"],
        default: "auto",
        summary: "How to read FILE or stdin",
        details: "text takes all of it as one prompt, without the line end at its end.",
      },
      chat: {
        type: "switch",
        summary: "Apply the chat template to prompts",
        details:
          "Each prompt becomes one user message. Rows with `messages` always use the template, " +
          "and so do their `tools`.",
      },
      system: {
        type: "string",
        requires: ["chat"],
        summary: "System message before each prompt",
        details: "Not every chat template knows one. Rows with `messages` have their own.",
      },
    }),
    ...flagGroup("Decoding", {
      "max-tokens": { ...maxTokensFlag, default: 256 },
      temperature: { ...temperatureFlag, default: 0 },
      "top-k": {
        type: "int",
        min: 0,
        default: 0,
        onlyWith: ["temperature"],
        summary: "Sample from the K most likely tokens; 0 turns it off",
        details: "Applied before --top-p and --min-p.",
      },
      "top-p": { ...topPFlag, default: 1, onlyWith: ["temperature"] },
      "min-p": {
        type: "number",
        min: 0,
        max: 1,
        default: 0,
        onlyWith: ["temperature"],
        summary: "Drop tokens below this fraction of the best token's probability",
        details: "Applied last.",
      },
      stop: {
        type: "string",
        list: "repeat",
        summary: "Stop string; may be repeated",
        details: "The text is cut before it; its tokens stay in `tokens`.",
      },
      "json-schema": {
        type: "path",
        placeholder: "FILE",
        conflictsWith: ["ignore-eos", "eos"],
        summary: "JSON Schema that every answer matches",
        details: "Tokens that would leave the grammar are not chosen. An answer that reaches " +
          "--max-tokens is cut all the same.",
      },
      eos: {
        type: "int",
        min: 0,
        list: "comma",
        placeholder: "ID",
        defaultText: "those of the checkpoint",
        summary: "End-of-text token ids",
        details: "The end token is part of `tokens`, but not of `text`.",
      },
      "ignore-eos": {
        type: "switch",
        summary: "Ignore end tokens and generate all tokens",
        details: "For timing: every prompt then gets all its tokens.",
      },
      "num-beams": {
        type: "int",
        min: 1,
        max: 256,
        default: 1,
        conflictsWith: ["temperature"],
        summary: "Number of beams; 1 disables beam search",
        details: "Deterministic; excludes sampling. The rules are those of transformers.",
      },
      "num-return": {
        type: "int",
        min: 1,
        max: 1024,
        default: 1,
        summary: "Number of results per prompt",
        details: "Beams, best first, or independent samples; with more than one, rows hold " +
          "`sequences`. A table has a row for each, with its number from 0 and, of beams, its score.",
      },
      "length-penalty": {
        type: "number",
        default: 1,
        onlyWith: ["num-beams"],
        summary: "Length penalty of beam search: scores are divided by length to it",
        details: "Above 0 favours long results.",
      },
      "early-stopping": {
        type: "choice",
        choices: ["false", "true", "never"],
        default: "false",
        onlyWith: ["num-beams"],
        summary: "Early stopping of beam search, as in transformers",
        details:
          "true: as soon as there are as many finished sequences as beams. false: when the best " +
          "open one is unlikely to beat them. never: when it cannot.",
      },
      "repetition-penalty": {
        type: "number",
        above: 0,
        default: 1,
        summary: "Repetition penalty on tokens so far; 1 turns it off",
        details:
          "As in transformers: divides their positive scores and multiplies negative ones, of " +
          "logits in sampling, of log-probabilities in beam search.",
      },
      "frequency-penalty": {
        type: "number",
        min: -2,
        max: 2,
        default: 0,
        summary: "Penalty per earlier occurrence of a token in the answer",
        details: "Subtracted from its logit, as in OpenAI's API; 0 turns it off.",
      },
      "presence-penalty": {
        type: "number",
        min: -2,
        max: 2,
        default: 0,
        summary: "Penalty on tokens that occur in the answer",
        details: "Subtracted from their logits, as in OpenAI's API; 0 turns it off.",
      },
      "logit-bias": {
        type: "string",
        list: "comma",
        placeholder: "ID=BIAS",
        summary: "Bias on the logit of a token, from -100 to 100; may be repeated",
        details: "-100 bans a token, 100 all but forces it.",
      },
      speculate: { ...speculateFlag, defaultText: `${speculateFlag.defaultText}; 0 with beams` },
    }),
    ...keptQuantizeFlags,
    ...engineFlags,
    adapter: {
      ...engineFlags.adapter,
      list: "repeat",
      placeholder: "[NAME=]PATH",
      summary: "ParScale parameters to lay over a plain backbone; may be repeated",
      details: engineFlags.adapter.details +
        " With several, rows choose one by `adapter`, its NAME or else PATH as given, and those " +
        "without run on the backbone, which is loaded once.",
    },
    shard: {
      ...shardFlag,
      group: "Input",
      conflictsWith: ["prompt"],
      details:
        `${shardFlag.details} Rows are dealt in turn, each with the random stream that it has ` +
        "in a single run.",
    },
    ...rowFlags,
    echo: {
      ...rowFlags.echo,
      details: "Rows also have `prompt`, or `messages`; a text begins with its prompt.",
    },
    timings: {
      type: "switch",
      group: "Result",
      summary: "Add times to the `stats` of each row",
      details: "`ttft_ms`, from when the prompt is taken from the input to its first text, and " +
        "`tokens_per_s`, its new tokens over all of its time. Of prompts in one batch times overlap. " +
        "`tokens_per_step` is above 1 where drafted tokens were kept (--speculate).",
    },
  },
  savesOnInterrupt: ({ out }) => out !== undefined && out !== "-",
});
