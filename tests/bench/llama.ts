/**
 * Times llama.cpp on the Qwen2.5-0.5B shape: one JSON line per call of `decode`.
 *
 * Run by `decode.ts` as a process of its own. P sequences advance together and only one of them
 * computes logits, which is what P streams would cost there.
 *
 *   deno run -A --no-config llama.ts FOLDER_WITH_node-llama-cpp FILE.gguf P THREADS CACHED STEPS
 */
const [folder, file, streams, threads, cached, steps] = Deno.args;
const { getLlama } = await import(`file://${folder}/node_modules/node-llama-cpp/dist/index.js`);
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath: file });
const P = Number(streams);
const context = await model.createContext({
  sequences: P,
  contextSize: Number(cached) + 128,
  batchSize: 512,
  threads: Number(threads),
  flashAttention: false,
});
const sequences = Array.from({ length: P }, () => context.getSequence());
const prompt = Array.from({ length: Number(cached) }, (_, i) => 300 + i % 1000);
await Promise.all(sequences.map((s) => s.evaluateWithoutGeneratingNewTokens(prompt)));
console.log("ready");
for await (const _ of readLines()) {
  const times: number[] = [];
  for (let i = 0; i < Number(steps); i++) {
    const started = performance.now();
    await Promise.all([
      sequences[0].evaluate([500 + i]).next(),
      ...sequences.slice(1).map((s) => s.evaluateWithoutGeneratingNewTokens([500 + i])),
    ]);
    times.push(performance.now() - started);
  }
  console.log(JSON.stringify(times));
}
Deno.exit(0);

/** One turn per line of standard input. */
async function* readLines() {
  const lines = Deno.stdin.readable.pipeThrough(new TextDecoderStream());
  for await (const text of lines) yield* text.split("\n").filter((line) => line !== "");
}
