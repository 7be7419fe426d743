/**
 * llama.cpp on eight sequences of one context, for `serve_llama.ts`: no HTTP on its side.
 *
 *   deno run -A --node-modules-dir=manual llama_serve.ts FOLDER_WITH_node-llama-cpp GGUF P SEQUENCES PROMPT TOKENS
 *
 * P streams are P sequences on the same tokens, of which one computes logits. Prints, for every line on
 * stdin, the milliseconds to each sequence's first token and to the end of all.
 */
const [folder, file, ...numbers] = Deno.args as [string, string, ...string[]];
const [streams, sequences, promptLength, tokens] = numbers.map(Number) as [
  number,
  number,
  number,
  number,
];
const { getLlama } = await import(`file://${folder}/node_modules/node-llama-cpp/dist/index.js`);
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath: file });
const context = await model.createContext({
  sequences: streams * sequences,
  contextSize: promptLength + tokens + 8,
  batchSize: 512,
  threads: navigator.hardwareConcurrency,
  flashAttention: false,
});
const groups = Array.from(
  { length: sequences },
  () => Array.from({ length: streams }, () => context.getSequence()),
);

/** One request: its streams advance together; returns the time of its first token. */
async function answer(group: (typeof groups)[number], prompt: number[], started: number) {
  let first = 0, next = prompt;
  for (let i = 0; i < tokens; i++) {
    const [{ value }] = await Promise.all([
      group[0].evaluate(next, { temperature: 0 }).next(),
      ...group.slice(1).map((s) => s.evaluateWithoutGeneratingNewTokens(next)),
    ]);
    if (i === 0) first = performance.now() - started;
    next = [value];
  }
  return first;
}

console.log("ready");
const decoder = new TextDecoder();
for await (const chunk of Deno.stdin.readable) {
  for (const line of decoder.decode(chunk).trim().split("\n")) {
    const seed = Number(line);
    await Promise.all(groups.flat().map((sequence) => sequence.clearHistory()));
    const started = performance.now();
    const firstMs = await Promise.all(groups.map((group, i) => {
      const prompt = Array.from(
        { length: promptLength },
        (_, at) => 1 + (seed * 7919 + i * 31 + at * 17) % 400,
      );
      return answer(group, prompt, started);
    }));
    console.log(JSON.stringify({ firstMs, totalMs: performance.now() - started }));
  }
}
