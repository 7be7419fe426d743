/**
 * IFEval, no shots: does the answer follow instructions that a program can check?
 *
 *     {"key": 1000, "prompt": "Write a 300+ word summary of the wikipedia page ... Do not use any
 *      commas and highlight at least 3 sections ...", "instruction_id_list":
 *      ["punctuation:no_comma", ...], "kwargs": [{}, ...]}
 *
 * Strict takes the answer as it is; loose forgives an introduction, a closing line and asterisks.
 */
import type { GenerationTask } from "../harness/task.ts";

export const ifeval: GenerationTask = {
  kind: "generation",
  name: "ifeval",
  title: "IFEval",
  version: 1,
  source: "google-research/instruction_following_eval (data/input_data.jsonl), or google/IFEval",
  folder: "ifeval",
  rows: ["input_data", "ifeval_input_data", "data/train", "train"],
  size: { rows: 541 },
  metrics: ["mean", "prompt_strict", "instruction_strict", "prompt_loose", "instruction_loose"],
  shots: { count: 0 },
  stops: [],
  maxTokens: 1280,
  uniqueColumn: "key",
  read(row) {
    const prompt = row.text("prompt");
    const { instruction_id_list: ids, kwargs } = row.fields;
    return { text: prompt, answer: "", target: { ids, kwargs, place: row.place, prompt } };
  },
  async openScorer() {
    const { checkResponse, loadLanguageTools, requireInstructions } = await import(
      "../grading/ifeval/mod.ts"
    );
    const tools = await loadLanguageTools();
    return ({ target }, responses) => {
      const { ids, kwargs, place, prompt } = target as Record<string, unknown>;
      const instructions = requireInstructions(ids, kwargs, place as string);
      const results = responses.map(({ text }) =>
        checkResponse(text, instructions, tools, prompt as string)
      );
      const pooled = (kind: "strict" | "loose") =>
        results.flatMap((result) => result[kind].map(Number));
      const whole = (kind: "strict" | "loose") =>
        results.map((result) => Number(result[kind].every(Boolean)));
      return {
        prompt_strict: whole("strict"),
        instruction_strict: pooled("strict"),
        prompt_loose: whole("loose"),
        instruction_loose: pooled("loose"),
      };
    };
  },
  derive(means) {
    const names = ["prompt_strict", "instruction_strict", "prompt_loose", "instruction_loose"];
    return { mean: names.reduce((sum, name) => sum + means[name]! / names.length, 0) };
  },
};
