/** `parscale inspect`: what is in a checkpoint, and what it takes to run it. */
import { engineFlags } from "../../framework/common.ts";
import { modelArgument, modelFlags } from "../../input/model_flags.ts";
import { defineCommand } from "../../framework/command.ts";
import { flagGroup } from "../../framework/table.ts";

export const command = defineCommand({
  description:
    "Opens a checkpoint, checks its tensors against its config, and shows family, streams, " +
    "shapes, parameter counts, stored types, tokenizer, and the memory that generation needs " +
    "for the given rows and context.\n\n" +
    "With --tokenize or --detokenize it only runs the tokenizer: text in and ids out, or back.",
  examples: {
    "What is this model?": "parscale inspect --model qwen-p4",
    "Does it fit, with 8 rows of 4096 tokens?":
      "parscale inspect --model qwen-p4 --batch 8 --context 4k --json | jq .results.memory_bytes",
    "See the tokens of a text": 'parscale inspect --model qwen-p4 --tokenize "2+2="',
  },
  arguments: [modelArgument],
  flags: {
    ...modelFlags,
    batch: {
      ...modelFlags.batch,
      default: 1,
      details: "Sequences that the memory is planned for.",
    },
    ...flagGroup("Model", {
      context: {
        type: "int",
        min: 1,
        unit: "tokens",
        defaultText: "2048, or the model's context",
        summary: "Tokens per row that the memory is planned for",
        details: "Prompt and new tokens together.",
      },
      check: {
        type: "switch",
        summary: "Read all weights and look for NaN and infinity",
        details:
          "Takes as long as reading the files; a bad weight is an error (exit code 5). With " +
          "--adapter also compares the backbone with the one the adapter was made for.",
      },
    }),
    ...flagGroup("Tokenizer", {
      tokenize: {
        type: "string",
        placeholder: "TEXT|-",
        conflictsWith: ["detokenize"],
        summary: "Print the token ids of a text",
        details: "- reads JSON lines of strings from stdin and prints one array of ids for each.",
      },
      detokenize: {
        type: "string",
        placeholder: "IDS|-",
        summary: "Print the text of token ids",
        details:
          "Ids as a JSON array or separated by commas; - reads one JSON array per line from " +
          "stdin and prints one JSON string for each.",
      },
    }),
    adapter: engineFlags.adapter,
    device: engineFlags.device,
    unverified: engineFlags.unverified,
    threads: engineFlags.threads,
  },
});
