/** `parscale chat`: a conversation in the terminal. */
import { engineFlags } from "../../framework/common.ts";
import { defineCommand } from "../../framework/command.ts";
import {
  chatTemplateFlag,
  keptQuantizeFlags,
  modelArgument,
  modelFlags,
  namedAdapterFlag,
  templateVarFlag,
} from "../../input/model_flags.ts";
import {
  maxTokensFlag,
  speculateFlag,
  temperatureFlag,
  topPFlag,
} from "../../input/decoding_flags.ts";
import { flagGroup } from "../../framework/table.ts";

const { adapter: _, ...deviceFlags } = engineFlags;

export const command = defineCommand({
  description:
    "Every line is a message; the model's chat template is used, and the conversation is kept.\n\n" +
    "Lines that begin with / are commands: `/p 4` continues with the model that has 4 streams, " +
    "`/weights` shows under every token the stream with the largest weight, or hides it, `/system`, " +
    "`/temp`, `/retry`, `/save` and `/clear` do what they say, `/help` lists them, `/quit` ends. " +
    "Ctrl-C stops an answer; between answers it ends the program.\n\n" +
    "On a terminal a line is edited with the usual keys, and the arrow keys go through earlier " +
    "lines. A backslash before Enter begins a new line; pasted text keeps its lines.",
  examples: {
    "Talk to a model": "parscale chat --model qwen-p4",
    "Switch between 1, 2 and 4 streams by /p":
      "parscale chat --model Qwen/Qwen2.5-0.5B-Instruct --adapter p2=run-p2 --adapter p4=run-p4",
    "Messages from a pipe, one a line":
      "printf 'Hello\\nAnd you?\\n' | parscale chat --model qwen-p4",
  },
  arguments: [modelArgument],
  flags: {
    model: modelFlags.model,
    ...chatTemplateFlag,
    ...templateVarFlag,
    adapter: {
      ...namedAdapterFlag,
      summary: "An adapter over the backbone, chosen by /p; may be repeated",
    },
    ...flagGroup("Input", {
      system: {
        type: "string",
        summary: "System message of the conversation",
        details: "Not every chat template knows one.",
      },
      history: {
        type: "switch",
        default: true,
        summary: "Keep messages for the arrow keys of later conversations",
        details:
          "In XDG_STATE_HOME/parscale/chat_history or ~/.local/state/parscale/chat_history, " +
          "the last thousand. Only what is typed on a terminal is kept.",
      },
    }),
    "stream-weights": {
      type: "switch",
      group: "Result",
      summary: "Begin with `/weights` on",
      details:
        "On a terminal the letter of the stream with the largest weight stands under every token; " +
        "elsewhere the weights of every token follow the answer.",
    },
    ...flagGroup("Decoding", {
      "max-tokens": {
        ...maxTokensFlag,
        default: 512,
        summary: "Maximum number of tokens per answer",
      },
      temperature: { ...temperatureFlag, default: 0.7 },
      "top-p": { ...topPFlag, default: 0.95 },
      speculate: speculateFlag,
    }),
    ...keptQuantizeFlags,
    ...deviceFlags,
  },
});
