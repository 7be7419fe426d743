/** `parscale inspect`: what is in a checkpoint, and what it takes to run it. */
import { engineFlags } from "../flags/common.ts";
import { modelFlags, openModel } from "../open_model.ts";
import { openReport } from "../output/report.ts";
import { bytesText, counted, grouped } from "../output/units.ts";
import { defineCommand } from "./define.ts";
import type { Io } from "../output/io.ts";
import { DataError, UsageError } from "../../core/errors.ts";

export const command = defineCommand({
  name: "inspect",
  summary: "Show what is in a checkpoint and the memory it needs",
  description:
    "Opens a checkpoint, checks its tensors against its config, and shows family, streams, " +
    "shapes, parameter counts, stored types, tokenizer, and the memory that generation needs " +
    "for the given rows and context.\n\n" +
    "With --tokenize or --detokenize it only runs the tokenizer: text in and ids out, or back.",
  examples: [
    { text: "What is this model?", line: "parscale inspect --model qwen-p4" },
    {
      text: "Does it fit, with 8 rows of 4096 tokens?",
      line:
        "parscale inspect --model qwen-p4 --batch 8 --context 4k --json | jq .results.memory_bytes",
    },
    {
      text: "See the tokens of a text",
      line: 'parscale inspect --model qwen-p4 --tokenize "2+2="',
    },
  ],
  flags: {
    ...modelFlags,
    batch: { ...modelFlags.batch, default: 1 },
    context: {
      type: "int",
      min: 1,
      default: 2048,
      group: "Model",
      unit: "tokens",
      summary: "Tokens per row that the memory is planned for",
      details: "Prompt and new tokens together.",
    },
    check: {
      type: "switch",
      group: "Model",
      summary: "Read all weights and look for NaN and infinity",
      details: "Takes as long as reading the files; a bad weight is an error (exit code 5). With " +
        "--adapter also compares the backbone with the one the adapter was made for.",
    },
    tokenize: {
      type: "string",
      group: "Tokenizer",
      placeholder: "TEXT|-",
      summary: "Print the token ids of a text",
      details: "- reads JSON lines of strings from stdin and prints one array of ids for each.",
    },
    detokenize: {
      type: "string",
      group: "Tokenizer",
      placeholder: "IDS|-",
      summary: "Print the text of token ids",
      details: "Ids as a JSON array or separated by commas; - reads one JSON array per line from " +
        "stdin and prints one JSON string for each.",
    },
    adapter: engineFlags.adapter,
    device: engineFlags.device,
    threads: engineFlags.threads,
  },
  async run(values, io, invocation) {
    if (values.tokenize !== undefined && values.detokenize !== undefined) {
      throw new UsageError("Cannot inspect: found --tokenize beside --detokenize, expected one");
    }
    if (values.tokenize !== undefined || values.detokenize !== undefined) {
      await runTokenizer(values, io);
      return;
    }
    using model = await openModel(values);
    const { checkpoint, engine } = model;
    const { config } = checkpoint;
    if (values.check) {
      const { checkFinite } = await import("../../core/checkpoint/read.ts");
      const { checkAdapterBackbone } = await import("../../core/checkpoint/backbone.ts");
      await checkAdapterBackbone(checkpoint);
      await checkFinite(checkpoint);
    }
    const { countParameters } = await import("../../core/model/parameters.ts");
    const { bucketFor } = await import("../../core/generate/kv_cache.ts");
    const counts = countParameters(config);
    const sizes = {
      batch: values.batch,
      tokens: 1,
      capacity: bucketFor(engine.device, values.context),
    };
    const plan = engine.plan({ ...sizes, selected: values.batch });
    const stored = [...checkpoint.tensors.values()];
    const tokenizer = await model.tokenizerIfAny();
    using report = openReport(io, invocation, {
      schema: "parscale.inspect/1",
      device: model.device,
    });
    const fields = {
      family: config.family,
      streams: config.streams,
      prefix_tokens: config.prefix ? config.prefixTokens : 0,
      smoothing: config.streams > 1 ? config.smoothing : null,
      params: counts.total,
      introduced_params: counts.introduced,
      embedding_params: counts.embedding,
      hidden_size: config.hiddenSize,
      intermediate_size: config.intermediateSize,
      num_hidden_layers: config.numHiddenLayers,
      num_attention_heads: config.numAttentionHeads,
      num_key_value_heads: config.numKeyValueHeads,
      head_dim: config.headDim,
      vocab_size: config.vocabSize,
      max_position_embeddings: config.maxPositionEmbeddings,
      rope_theta: config.ropeTheta,
      tie_word_embeddings: config.tieWordEmbeddings,
      dtypes: [...new Set(stored.map((tensor) => tensor.dtype))].join(", "),
      tensors: stored.length,
      extra_tensors: checkpoint.extraTensors.length,
      files: new Set(stored.map((tensor) => tensor.path)).size,
      stored_bytes: stored.reduce((sum, tensor) => sum + tensor.byteLength, 0),
      tokenizer: tokenizer?.kind ?? null,
      tokenizer_vocab_size: tokenizer?.vocabSize ?? null,
      eos_token_ids: config.eosTokenIds,
      rows: values.batch,
      context: values.context,
      weights_bytes: plan.sections.parameters,
      kv_cache_bytes: plan.sections.state,
      memory_bytes: plan.totalBytes,
    };
    await report.finish(invocation.format === "table" ? readable(fields) : fields);
  },
});

/** What `inspect` finds; the keys of its JSON result. */
interface Fields {
  readonly [key: string]: string | number | boolean | null | readonly number[];
}

/** The same facts in a few lines for a person. */
function readable(f: Fields): Record<string, string> {
  const n = (key: string) => grouped(f[key] as number);
  const bytes = (key: string) => bytesText(f[key] as number);
  const rest = (f.memory_bytes as number) - (f.weights_bytes as number) -
    (f.kv_cache_bytes as number);
  const parallel = (f.streams as number) > 1;
  return {
    family: `${f.family}, ${counted(f.streams as number, "stream")}`,
    ...(parallel
      ? { prefix: `${f.prefix_tokens} tokens per stream and layer, smoothing ${f.smoothing}` }
      : {}),
    parameters: `${n("params")}, of which ${n("introduced_params")} introduced and ` +
      `${n("embedding_params")} embedding`,
    layers: `${f.num_hidden_layers} of width ${n("hidden_size")}, MLP ${n("intermediate_size")}, ` +
      `${f.num_attention_heads} query and ${f.num_key_value_heads} key heads of ${f.head_dim}`,
    vocabulary: `${n("vocab_size")}, ${f.tie_word_embeddings ? "one table" : "two tables"}`,
    context: `${n("max_position_embeddings")} positions, rope theta ${n("rope_theta")}`,
    files: `${counted(f.files as number, "file")}, ${counted(f.tensors as number, "tensor")} of ` +
      `${f.dtypes}, ${bytes("stored_bytes")}`,
    tokenizer: f.tokenizer === null
      ? "none"
      : `${f.tokenizer}, ${n("tokenizer_vocab_size")} tokens, end tokens ${
        (f.eos_token_ids as number[]).join(", ") || "none"
      }`,
    memory: `${bytes("memory_bytes")} for ${counted(f.rows as number, "row")} of ${n("context")} ` +
      `tokens: weights ${bytes("weights_bytes")}, keys and values ${bytes("kv_cache_bytes")}, ` +
      `the rest ${bytesText(rest)}`,
  };
}

interface TokenizerValues {
  readonly model: string;
  readonly tokenize: string | undefined;
  readonly detokenize: string | undefined;
}

async function runTokenizer(values: TokenizerValues, io: Io): Promise<void> {
  const { resolveModel } = await import("../../core/checkpoint/hub.ts");
  const { openTokenizer } = await import("../../core/tokenizer/tokenizer.ts");
  const { resolveRuns } = await import("../../core/checkpoint/run.ts");
  const { model } = await resolveRuns(await resolveModel(values.model), undefined);
  const tokenizer = await openTokenizer(model);
  const encode = (text: string) => JSON.stringify(Array.from(tokenizer.encode(text)));
  const { tokenize, detokenize } = values;
  if (tokenize === "-") {
    for await (const { value, place } of jsonLines(io)) {
      if (typeof value !== "string") throw lineError(place, value, "a JSON string");
      io.write(encode(value) + "\n");
    }
  } else if (tokenize !== undefined) {
    io.write(encode(tokenize) + "\n");
  } else if (detokenize === "-") {
    for await (const { value, place } of jsonLines(io)) {
      if (!isIds(value)) throw lineError(place, value, "a JSON array of token ids");
      io.write(JSON.stringify(tokenizer.decode(value)) + "\n");
    }
  } else {
    const ids = detokenize!.replace(/^\s*\[|\]\s*$/g, "").split(",").map((id) => id.trim());
    if (!ids.every((id) => /^\d+$/.test(id))) {
      throw new UsageError(
        `Cannot use "--detokenize": found "${detokenize}", expected token ids separated by commas`,
      );
    }
    io.write(tokenizer.decode(ids.map(Number)) + "\n");
  }
}

/** The JSON values on stdin, one per line; empty lines are passed over. */
async function* jsonLines(io: Io): AsyncGenerator<{ value: unknown; place: string }> {
  let number = 0;
  for await (const line of io.readLines()) {
    const place = `line ${++number} of stdin`;
    if (line.trim() === "") continue;
    try {
      yield { value: JSON.parse(line), place };
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      throw new DataError(`Cannot read ${place}: found ${error.message}, expected JSON`);
    }
  }
}

function lineError(place: string, value: unknown, expected: string): DataError {
  return new DataError(
    `Cannot read ${place}: found ${JSON.stringify(value)}, expected ${expected}`,
  );
}

function isIds(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((id) => Number.isSafeInteger(id) && id >= 0);
}
