/** `parscale eval`: benchmarks in, scores out. */
import { evalFlags } from "./flags.ts";
import { evalPresets } from "./presets.ts";
import { defineCommand } from "../../framework/command.ts";

export const command = defineCommand({
  name: "eval",
  summary: "Run benchmarks",
  description:
    "Asks a model the questions of public benchmarks, exactly as lm-evaluation-harness 0.4.13 and " +
    "EvalPlus do, and scores its answers by their rules. Rows are fetched from where they are " +
    "published, at pinned commits, unless --data names a folder with one folder per benchmark, in " +
    "the layout of its authors or of the Hugging Face hub.\n\n" +
    "`eval ls` lists tasks and what they need, `eval fetch TASK...` only fetches, `eval show TASK` " +
    "prints exact prompts, and `eval merge` puts the folders of shards together.\n\n" +
    "With --out every answer is written down as it comes; the same command resumes after any " +
    "interruption. Answers can be scored later, or made by other tools (--score).",
  examples: [
    {
      text: "A quick look at two benchmarks",
      line: "parscale eval --model qwen-p4 --tasks gsm8k,arc --limit 50",
    },
    {
      text: "The paper's table for base models",
      line: "parscale eval --model qwen-p4 --preset paper-1t --data bench --allow-code-execution " +
        "--out results",
    },
    { text: "What exactly is asked?", line: "parscale eval show mmlu -n 2 --data bench" },
    {
      text: "Spread over four machines, then merge",
      line: "parscale eval --model qwen-p4 --tasks mmlu --data bench --shard 1/4 --out part-1",
    },
    {
      text: "The same as the tasks of a Slurm array, or the ranks of mpirun",
      line: "parscale eval --model qwen-p4 --tasks mmlu --data bench --shard auto --out part",
    },
    {
      text: "Score answers made elsewhere",
      line: "parscale eval --score samples.jsonl --tasks humaneval --data bench " +
        "--allow-code-execution",
    },
  ],
  arguments: [
    {
      name: "ls|fetch|show|merge",
      summary: "Instead of evaluating",
      choices: ["ls", "fetch", "show", "merge"],
    },
    {
      name: "TASK|FOLDER",
      summary: "Tasks to fetch, task to show, or folders to merge",
      repeated: true,
    },
  ],
  flags: evalFlags,
  presets: evalPresets,
  savesOnInterrupt: true,
  async plan(values, io) {
    const { planEval } = await import("./plan.ts");
    return await planEval(values, io);
  },
  async run(values, io, invocation) {
    const { runEval } = await import("./run.ts");
    return await runEval(values, io, invocation);
  },
});
