/** `parscale visualize`: which stream of a model weighs most at every token. */
import { visualizeFlags } from "./flags.ts";
import { defineCommand } from "../../framework/command.ts";

export const command = defineCommand({
  name: "visualize",
  summary: "Show the aggregation weights of the streams per token",
  description:
    "Runs a ParScale model over texts and shows, for every token, in which shares its streams " +
    "were mixed there to predict the next token. The stream with the largest share wins the " +
    "token: its letter (a number beyond 26 streams) stands below the text, colour only " +
    "repeats it.\n\n" +
    "FILE and stdin hold one text, or JSON lines with `text`, `prompt` (and `text` or " +
    "`tokens`, the answer as `generate` writes it), `messages` or `tokens`. A row of a " +
    "benchmark is shown with its reference answer. Every text is a section of its own.\n\n" +
    "Statistics: the share of tokens each stream wins; the entropy of the weights in nats, " +
    "and as a share of ln P, which equal weights have; the mean length of runs of one winner, " +
    "beside the length expected if winners were drawn one by one with the same shares; and " +
    "between texts, how much of their " +
    "tokens they give to the same streams, and how often the same token has the same winner.\n\n" +
    "Rows of --jsonl have `text_id`, `position`, `token`, `text` (empty before the last token " +
    "of a character that takes several), `winner`, `stream` (from 0), `weights`, `entropy` " +
    "and `logprob`, what the model gave this token after those before. --json has them with " +
    "all statistics.",
  examples: [
    {
      text: "A sentence on the terminal",
      line: 'parscale visualize --model qwen-p4 --text "The cat sat on the mat"',
    },
    {
      text: "A page to look at in a browser",
      line: "parscale visualize story.txt --model qwen-p4 --html story.html",
    },
    {
      text: "What the model wrote itself, from the rows of generate --jsonl",
      line: "parscale visualize answers.jsonl --model qwen-p4 --jsonl -o weights.jsonl",
    },
    {
      text: "Three rows of a benchmark with their answers",
      line: "parscale visualize --model qwen-p4 --task gsm8k --data bench --ids 3,4,5",
    },
    {
      text: "How differently the streams err",
      line: "parscale visualize wiki.txt --model qwen-p4 --max-tokens 2048 --diversity --json",
    },
  ],
  arguments: [{
    name: "FILE|-",
    summary: "Texts to show; stdin when absent or -",
    repeated: true,
  }],
  flags: visualizeFlags,
  async run(values, io, invocation) {
    const { runVisualize } = await import("./run.ts");
    await runVisualize(values, io, invocation);
  },
});
