/** `parscale serve`: an OpenAI-compatible HTTP server over one backbone. */
import { engineFlags } from "../../framework/common.ts";
import { defineCommand } from "../../framework/command.ts";
import { flagGroup } from "../../framework/table.ts";
import {
  chatTemplateFlag,
  keptQuantizeFlags,
  modelArgument,
  modelFlags,
  namedAdapterFlag,
  templateVarFlag,
} from "../../input/model_flags.ts";
import { speculateFlag } from "../../input/decoding_flags.ts";

const { adapter: _, seed: _seed, ...deviceFlags } = engineFlags;

export const command = defineCommand({
  description:
    "Answers /v1/chat/completions and /v1/completions of the OpenAI API, with log-probabilities, " +
    "echo, streaming and the rules of lm-evaluation-harness, and a chat page at /. Requests share " +
    "batches; prompts are prefilled in chunks between decode steps.\n\n" +
    "Every --adapter is a model name of its own over the same backbone, so a request chooses how " +
    'many streams it spends: by name, or by `"parscale": {"streams": 4}`. With `"parscale": ' +
    '{"weights": true}` the response has the aggregation weights of every token. With `"auto"` for ' +
    "the streams, or --streams auto, an answer gets as many as the load allows.\n\n" +
    "The server listens on this machine alone unless --host says otherwise, which needs an API key " +
    "in PARSCALE_API_KEY. On SIGTERM and Ctrl-C running requests finish first; a second signal ends " +
    "the program at once.",
  examples: {
    "Serve a model": "parscale serve --model qwen-p4",
    "One backbone with 1, 2 or 4 streams per request":
      "parscale serve --model Qwen/Qwen2.5-0.5B --adapter p2=run-p2 --adapter p4=run-p4",
    "As many streams as keep a token within 100 ms":
      "parscale serve --model Qwen/Qwen2.5-0.5B --adapter p4=run-p4 --streams auto " +
      "--target-tpot 100ms",
    "On all interfaces, with the key in PARSCALE_API_KEY":
      "parscale serve --model qwen-p4 --host 0.0.0.0",
  },
  arguments: [modelArgument],
  flags: {
    model: modelFlags.model,
    ...chatTemplateFlag,
    ...templateVarFlag,
    adapter: {
      ...namedAdapterFlag,
      summary: "Serve an adapter over the backbone as model NAME; may be repeated",
    },
    ...flagGroup("Server", {
      host: {
        type: "string",
        default: "127.0.0.1",
        summary: "Address to listen on",
        details: "Any other than a loopback address needs PARSCALE_API_KEY.",
      },
      port: {
        type: "int",
        min: 0,
        max: 65535,
        default: 8000,
        summary: "Port to listen on; 0 picks a free one",
        details: "The port opens before the weights are loaded; /health is 503 until they are.",
      },
      cors: {
        type: "string",
        list: "repeat",
        placeholder: "ORIGIN",
        summary: "Allow requests from pages of this origin; may be repeated",
        details: "Such as https://chat.example.org. A * allows all.",
      },
      ui: {
        type: "switch",
        default: true,
        summary: "Serve the chat page at /",
        details: "The page is one file that asks for nothing but this server.",
      },
      "log-format": {
        type: "choice",
        choices: ["text", "json"],
        default: "text",
        summary: "Format of the log",
        details:
          "Every request is a line on stderr: status, method, path, model, streams, tokens in " +
          "and out, time to the first token and in total. 499 is a client that left. Answers of " +
          "/health and /metrics are only logged with -v, and nothing is with -q.",
      },
    }),
    ...flagGroup("Streams", {
      streams: {
        type: "string",
        placeholder: "N|auto",
        suggestions: ["auto"],
        defaultText: "the backbone's",
        summary: "Streams of requests that name the backbone or no model",
        details:
          "With `auto` the most among --model and the adapters that keep --target-tpot and " +
          "--target-ttft; step times are measured at the start, and while serving. Requests that " +
          "name an adapter get that adapter, and `parscale.streams` of a request counts more.",
      },
      "target-tpot": {
        type: "duration",
        above: 0,
        default: 0.08,
        unit: "seconds",
        requires: ["adapter"],
        summary: "Time per output token that `auto` keeps",
        details: "A batch whose step takes longer also leaves out turns while others decode.",
      },
      "target-ttft": {
        type: "duration",
        above: 0,
        default: 2,
        unit: "seconds",
        requires: ["adapter"],
        summary: "Time to the first token that `auto` keeps",
        details: "Counted are prompts that wait and the request's own.",
      },
    }),
    ...flagGroup("Scheduling", {
      "max-batch": {
        type: "int",
        min: 1,
        max: 1024,
        default: 8,
        unit: "sequences",
        summary: "Sequences computed together, per model",
        details: "More is faster per sequence and takes more memory.",
      },
      "max-model-len": {
        type: "int",
        min: 1,
        unit: "tokens",
        defaultText: "the model's context, or what fits",
        summary: "Maximum number of tokens of prompt and answer",
        details: "Memory for --max-batch sequences of this length is planned at the start.",
      },
      "max-queue": {
        type: "int",
        min: 0,
        default: 1024,
        unit: "choices",
        summary: "Choices that may wait; more get status 429",
        details: "A request with `n` or a list of prompts counts once for each answer.",
      },
      "prefix-cache": {
        type: "size",
        min: 0,
        default: 2 ** 28,
        summary: "Memory for keys and values of earlier prompts and answers",
        details: "Least recently used ones go first. 0 keeps the last prompts alone.",
      },
      speculate: speculateFlag,
      "drain-timeout": {
        type: "duration",
        min: 0,
        default: 30,
        summary: "Time for running requests after SIGTERM",
        details: "Those that are not finished then end with an error, and the exit code is 143.",
      },
    }),
    ...keptQuantizeFlags,
    ...deviceFlags,
  },
});
