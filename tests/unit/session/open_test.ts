/** Protects what becomes of weights, and what is told of those that take much memory. */
import { assert, assertEquals } from "@std/assert";
import { openCheckpoint, weightsOf } from "../../../core/checkpoint/open.ts";
import { matrixBytes } from "../../../core/quant/codes.ts";
import type { FileTensor } from "../../../core/quant/stored.ts";
import { EMBEDDING, linearSpecs } from "../../../core/model/parameters.ts";
import { MemoryMap } from "../../../core/runtime/memory/memory_map.ts";
import { openModel, type OpenOptions } from "../../../core/session/open.ts";
import { writeGguf, writeTinyFolder } from "../../gguf_model.ts";
import { replaced } from "../../replaced.ts";
import { withScratch } from "../../scratch.ts";
import { FIXTURES } from "../../fixtures.ts";

const MODEL = `${FIXTURES}models/word-problems`;

/** Sizes of a Llama whose rows are whole blocks of every type. */
const WIDE = { hidden_size: 256, intermediate_size: 256, head_dim: 64 };

/** Warnings of opening a model with `freeMemory` bytes free. */
async function warnings(freeMemory: number, quantize?: OpenOptions["quantize"]): Promise<string[]> {
  const told: string[] = [], events = { onWarning: (text: string) => told.push(text) };
  using _model = await openModel(MODEL, { threads: 1, freeMemory, quantize, events });
  return told;
}

Deno.test("weights that do not fit the free memory are warned of, with what 8 bits would take", async () => {
  const free = "of memory, 0.0005 GB are free";
  assertEquals(await warnings(5e5), [
    `the weights take 0.0035 GB ${free}; with --quantize q8 they take 0.00098 GB`,
  ]);
  assertEquals(await warnings(5e5, "q8"), [`the weights take 0.00098 GB ${free}`]);
  assertEquals(await warnings(1e6, "q8"), []);
});

Deno.test("blocks with a minimum keep their codes, and are quantized anew where that is asked for", () =>
  withScratch(async (cwd) => {
    const path = `${cwd}/model.gguf`;
    await writeTinyFolder(`${cwd}/folder`, "llama", WIDE);
    await writeGguf(path, `${cwd}/folder`, { type: "Q4_K" });
    const { table } = weightsOf(await openCheckpoint(path)).get(EMBEDDING) as FileTensor;
    assertEquals(table, undefined, "rows are read from codes, which have no minimum");
    const logprobs = async (quantize?: "none" | "q4") => {
      using model = await openModel(path, { quantize, threads: 1 });
      assertEquals(model.matrices, quantize === "none" ? "f32" : "q4");
      return (await model.score([1], [5, 9, 200, 33, 7])).tokenLogprobs;
    };
    const [exact, kept, anew] = [await logprobs("none"), await logprobs(), await logprobs("q4")];
    const worst = (found: Float32Array) =>
      Math.max(...found.map((x, i) => Math.abs(x - exact[i]!)));
    assert(worst(kept) > 0 && worst(kept) < 1 && worst(anew) > 2 * worst(kept), `${kept}, ${anew}`);
  }));

Deno.test("a session names the format of most of its matrices", () =>
  withScratch(async (cwd) => {
    await writeTinyFolder(`${cwd}/folder`, "llama");
    const type = (name: string) => name === "token_embd.weight" ? "Q8_0" : "Q4_0";
    await writeGguf(`${cwd}/model.gguf`, `${cwd}/folder`, { type });
    using model = await openModel(`${cwd}/model.gguf`, { threads: 1 });
    assertEquals(model.matrices, "q4");
  }));

Deno.test("weights kept as a GGUF file has them are called by its format", () =>
  withScratch(async (cwd) => {
    const path = `${cwd}/model.gguf`;
    await writeTinyFolder(`${cwd}/folder`, "llama", WIDE);
    const name = async (number: number, quantize?: OpenOptions["quantize"]) => {
      const metadata = { "general.file_type": ["u32", number] } as const;
      await writeGguf(path, `${cwd}/folder`, { type: "Q8_0", metadata });
      using model = await openModel(path, { threads: 1, quantize });
      return model.matrices;
    };
    assertEquals([await name(15), await name(7), await name(4)], ["Q4_K_M", "Q8_0", "q8"]);
    assertEquals([await name(15, "q4"), await name(15, "none")], ["q4", "f32"]);
  }));

Deno.test("codes of a tied table are made once, to read rows of and to pack", () =>
  withScratch(async (cwd) => {
    await writeTinyFolder(`${cwd}/folder`, "llama");
    await writeGguf(`${cwd}/model.gguf`, `${cwd}/folder`, { type: "Q8_0" });
    const { allocate } = MemoryMap;
    let bytes = 0;
    using _ = replaced(MemoryMap, {
      allocate(length) {
        bytes += length;
        return allocate(length);
      },
    });
    using model = await openModel(`${cwd}/model.gguf`, { threads: 2, splitAbove: 64 });
    await model.complete("a", { maxTokens: 2 });
    const matrices = linearSpecs(model.config);
    assert(matrices.some(({ name }) => name === EMBEDDING));
    const format = { kind: "q8", block: 32 } as const;
    assertEquals(bytes, matrices.reduce((sum, { shape }) => sum + matrixBytes(shape, format), 0));
  }));
