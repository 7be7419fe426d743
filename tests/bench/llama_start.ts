/**
 * llama.cpp from a loaded module to its first token, for `cold_start.ts`.
 *
 *   deno run -A tests/bench/llama_start.ts FOLDER_WITH_node-llama-cpp GGUF
 */
const [folder, file] = Deno.args as [string, string];
const { getLlama } = await import(`file://${folder}/node_modules/node-llama-cpp/dist/index.js`);
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const started = performance.now();
const model = await llama.loadModel({ modelPath: file });
const context = await model.createContext({
  contextSize: 256,
  threads: navigator.hardwareConcurrency,
  flashAttention: false,
});
await context.getSequence().evaluate([300, 301, 302, 303, 304]).next();
console.log(JSON.stringify({ seconds: (performance.now() - started) / 1000 }));
Deno.exit(0);
