/**
 * Times llama.cpp on the Qwen2.5-0.5B shape: one JSON line for every line of input, `decode` or `prefill`.
 *
 * Run by `decode.ts` as a process of its own. P sequences advance together and only one of them
 * computes logits, which is what P streams would cost there.
 *
 *   deno run -A --no-config llama.ts FOLDER_WITH_node-llama-cpp FILE.gguf P THREADS CACHED STEPS PREFILL
 */
const [folder, file, streams, threads, cached, steps, prefill] = Deno.args;
const { getLlama } = await import(`file://${folder}/node_modules/node-llama-cpp/dist/index.js`);
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath: file });
const P = Number(streams);
const context = await model.createContext({
  sequences: P + 1,
  contextSize: Math.max(Number(cached), Number(prefill)) + 128,
  batchSize: 512,
  threads: Number(threads),
  flashAttention: false,
});
const sequences = Array.from({ length: P }, () => context.getSequence());
const spare = context.getSequence();
const tokens = (count: number) => Array.from({ length: count }, (_, i) => 300 + i % 1000);
const prompt = tokens(Number(cached));
await Promise.all(sequences.map((s) => s.evaluateWithoutGeneratingNewTokens(prompt)));
console.log("ready");
for await (const line of readLines()) {
  console.log(JSON.stringify(line === "prefill" ? await prefillRate() : await decodeTimes()));
}
Deno.exit(0);

/** One turn per line of standard input. */
async function* readLines() {
  const lines = Deno.stdin.readable.pipeThrough(new TextDecoderStream());
  for await (const text of lines) yield* text.split("\n").filter((line) => line !== "");
}

/** Milliseconds of each of a few steps. */
async function decodeTimes(): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < Number(steps); i++) {
    const started = performance.now();
    await Promise.all([
      sequences[0].evaluate([500 + i]).next(),
      ...sequences.slice(1).map((s) => s.evaluateWithoutGeneratingNewTokens([500 + i])),
    ]);
    times.push(performance.now() - started);
  }
  return times;
}

/** Tokens of a prompt per second, its next token included. */
async function prefillRate(): Promise<number> {
  await spare.clearHistory();
  const started = performance.now();
  await spare.evaluate(tokens(Number(prefill))).next();
  return Number(prefill) / ((performance.now() - started) / 1000);
}
