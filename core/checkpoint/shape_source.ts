/**
 * The `config.json` of a model from scratch: a shape of the paper or of Qwen3.5 by name, a file, or one in
 * a folder.
 *
 * A path that exists wins over a name.
 */
import { DataError } from "../base/errors.ts";
import { type JsonObject, readJsonObject, statIfExists } from "../base/files.ts";
import {
  findPaperShape,
  PAPER_CONSTANTS,
  PAPER_SHAPES,
  type PaperShape,
} from "../model/paper_shapes.ts";
import type { ModelFiles } from "../base/companions.ts";
import { isGguf, openModelFiles } from "./model_files.ts";
import { CONFIG_FILE } from "./open.ts";
import { findQwen35, QWEN35_NAMES } from "./qwen35_shapes.ts";

/** A parsed file and where it is from. */
export interface ShapeSource {
  readonly json: JsonObject;
  /** Names the source in messages. */
  readonly path: string;
  /** The model given, whose tokenizer goes with the shape; undefined for a name or a file. */
  readonly files: ModelFiles | undefined;
}

/** Reads the `config.json` that a name, a file or a folder stands for. */
export async function readShape(source: string): Promise<ShapeSource> {
  const info = await statIfExists(source);
  if (info === undefined) {
    const shape = findPaperShape(source), qwen = findQwen35(source);
    if (qwen) return { json: qwen, path: source, files: undefined };
    if (shape === undefined) throw unknownShape(source);
    return { json: paperConfigJson(shape), path: shape.name, files: undefined };
  }
  const isModel = info.isDirectory || await isGguf(source);
  const path = isModel ? `${source}/${CONFIG_FILE}` : source;
  const files = isModel ? await openModelFiles(source) : undefined;
  const json = files?.isGguf ? await files.json(CONFIG_FILE) : await readJsonObject(path);
  return { json, path, files };
}

function unknownShape(source: string): DataError {
  return new DataError(`no such file or folder: "${source}"`, {
    hints: [
      `shapes of the paper are ${PAPER_SHAPES.map(({ name }) => name).join(", ")}`,
      `those of Qwen3.5 are ${QWEN35_NAMES.join(", ")}`,
    ],
  });
}

/**
 * The configuration of a shape of the paper: Qwen2.5 with a rotary base of 10,000 and a context of
 * 2,048 tokens, in bfloat16. The paper does not say whether the output matrix is the embedding
 * table; it is here, as in the small Qwen2.5 models.
 */
function paperConfigJson(shape: PaperShape): JsonObject {
  return {
    architectures: ["Qwen2ForCausalLM"],
    model_type: "qwen2",
    vocab_size: PAPER_CONSTANTS.vocabSize,
    hidden_size: shape.hiddenSize,
    intermediate_size: shape.intermediateSize,
    num_hidden_layers: PAPER_CONSTANTS.numHiddenLayers,
    num_attention_heads: PAPER_CONSTANTS.numAttentionHeads,
    num_key_value_heads: PAPER_CONSTANTS.numKeyValueHeads,
    max_position_embeddings: 2048,
    rope_theta: 10_000,
    rms_norm_eps: 1e-6,
    hidden_act: "silu",
    initializer_range: 0.02,
    attention_dropout: 0,
    tie_word_embeddings: true,
    use_cache: true,
    use_sliding_window: false,
    bos_token_id: 151_643,
    eos_token_id: 151_643,
    torch_dtype: "bfloat16",
  };
}
