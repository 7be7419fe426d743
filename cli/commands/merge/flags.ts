/** `parscale merge`: the documents of all parts of a sharded `generate` or `score` become one. */
import { defineCommand } from "../../framework/command.ts";

export const command = defineCommand({
  description:
    "Takes the JSON documents that `generate` or `score` wrote with --shard and --json, and writes " +
    "their rows in the order of the input: the result of a single run, bit for bit. All parts must " +
    "be there and belong together; a part that is missing is run again alone.\n\n" +
    "The folders of `parscale eval --shard` are merged by `parscale eval merge`.",
  examples: {
    "Four parts as JSON lines":
      "parscale merge scores-1.json scores-2.json scores-3.json scores-4.json --jsonl " +
      "-o scores.jsonl",
  },
  arguments: [{ name: "FILE", summary: "Documents of all parts, in any order", repeated: true }],
  flags: {},
});
