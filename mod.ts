/**
 * parscale: parallel scaling of language models.
 *
 * As the main module this is the command line, see `parscale help`. Imported, it opens models in a
 * program of one's own:
 *
 * ```ts
 * import { openModel } from "./mod.ts";
 *
 * using model = await openModel("qwen-p4");
 * for await (const piece of model.generate("The capital of France is")) console.log(piece);
 * const { text, finishReason } = await model.complete([{ role: "user", content: "2 + 2?" }]);
 * const { loglikelihood } = await model.score("2 + 2 =", " 4");
 * ```
 *
 * Importing it loads nothing else; opening a model loads the engine. Models are trained by the command
 * line: `run(["train", …])` starts it from a program.
 *
 * @module
 */
import type { OpenOptions } from "./core/session/open.ts";
import type { Session } from "./core/session/session.ts";

export type { DownloadEvents } from "./core/hub/blob.ts";
export type { FindOptions, OpenEvents } from "./core/session/find.ts";
export type { OpenOptions } from "./core/session/open.ts";
export type { MatrixOptions, Quantization } from "./core/session/quantization.ts";
export type { BeamCompletion } from "./core/session/beam.ts";
export type { BatchOptions, BeamSearchOptions, GenerateOptions } from "./core/session/options.ts";
export type { Prompt, Session } from "./core/session/session.ts";
export type { Completion } from "./core/session/stream.ts";
export {
  DataError,
  EnvironmentError,
  NumericalError,
  ParscaleError,
  UsageError,
} from "./core/base/errors.ts";
export type { ErrorKind } from "./core/base/errors.ts";
export type {
  Aggregator,
  DeltaConfig,
  Family,
  ModelConfig,
  RopeScaling,
  WeightType,
} from "./core/model/config.ts";
export { parseExactJson } from "./core/base/exact_json.ts";
export type { SamplingOptions } from "./core/base/sampling.ts";
export type { LogitRules } from "./core/generate/logit_rules.ts";
export type { FinishReason } from "./core/generate/request.ts";
export type { Score } from "./core/generate/score.ts";
export type { DeviceChoice, DeviceName, ElementChoice } from "./core/runtime/mod.ts";
export type { ChatMessage } from "./core/tokenizer/chat.ts";
export type {
  DecodeOptions,
  EncodeOptions,
  StreamDecoder,
  Tokenizer,
  TokenizerInfo,
} from "./core/tokenizer/types.ts";

/**
 * Opens a folder that holds a Qwen2, Qwen2.5, Qwen3, Llama or ParScale checkpoint, a `.gguf` file of such a
 * model, or a `train` run; a name
 * such as `Qwen/Qwen2.5-0.5B` is downloaded from the hub unless there is a folder of that name.
 *
 * @example
 * ```ts
 * import { openModel } from "@parscale/parscale";
 *
 * using model = await openModel("Qwen/Qwen2.5-0.5B", { device: "cpu" });
 * for await (const piece of model.generate("The capital of France is")) console.log(piece);
 * ```
 * @throws {DataError} when the folder is not such a checkpoint
 * @throws {EnvironmentError} when the device cannot be used or the hub cannot be reached
 */
export async function openModel(model: string, options?: OpenOptions): Promise<Session> {
  return await (await import("./core/session/open.ts")).openModel(model, options);
}

/**
 * Runs a command line, as `parscale ARGS…` does, and returns its exit code.
 *
 * @example
 * ```ts
 * import { run } from "@parscale/parscale";
 *
 * const code = await run(["train", "--model", "qwen-p4", "--data", "rows.jsonl", "--out", "run"]);
 * if (code !== 0) console.error(`train failed with exit code ${code}`);
 * ```
 */
export async function run(args: readonly string[]): Promise<number> {
  const { main } = await import("./cli/main.ts");
  const { Io, processSystem } = await import("./cli/output/io.ts");
  return await main(args, new Io(processSystem()));
}

if (import.meta.main) {
  // A compiled program is its own sandbox child; see core/eval/sandbox/protocol.ts.
  if (Deno.args[0] === "--sandbox-child") {
    await (await import("./core/eval/sandbox/child.ts")).serve();
  } else {
    const { runProcess } = await import("./cli/main.ts").catch(refuse);
    // A process that another parscale process started; see cli/framework/own_process.ts.
    const isChild = Deno.args[0] === "--child";
    if (isChild) void (await import("./cli/framework/own_process.ts")).endWithParent();
    await runProcess(Deno.args.slice(isChild ? 1 : 0), undefined, isChild);
  }
}

/** Without permission to read there is no command line to say what is missing, so it is said here. */
function refuse(error: unknown): never {
  if (!(error instanceof TypeError && error.message.startsWith("Requires read"))) throw error;
  console.error(
    `error: missing permission: ${error.message.split(",")[0]!.replace(/^Requires /, "")}\n\n` +
      "hint: run with `deno run -A mod.ts`",
  );
  Deno.exit(4);
}
