/** `parscale doctor`: what works on this machine, and what to do where it does not. */
import { defineCommand } from "../../framework/command.ts";
import { OTHER_GPUS } from "../../framework/common.ts";
import { flagGroup } from "../../framework/table.ts";

export const command = defineCommand({
  description:
    "Runs every check and shows what was found, with a remedy where something is missing. A " +
    "required check that fails gives exit code 4. Nothing leaves the machine. --device cuda tests a " +
    "GPU from its libraries to a training step, and records one that passes; --clear-cache removes " +
    "the quantized weights that were kept.",
  examples: {
    "Check everything": "parscale doctor",
    "Test an NVIDIA GPU step by step": "parscale doctor --device cuda",
    "List failures for a script":
      `parscale doctor --json | jq -e '.results[]|select(.status=="fail")'`,
  },
  flags: flagGroup("Result", {
    device: {
      type: "choice",
      choices: ["cuda", ...OTHER_GPUS],
      configurable: false,
      summary: "Test a GPU step by step instead",
      details:
        "Libraries, context, memory, a copy, the compiler, every kernel beside the reference, " +
        "a model's logits, a training step, bandwidth and arithmetic. The first stage that fails " +
        "ends it and says what to report. Takes less than a minute. A GPU that passes is recorded in " +
        "the cache folder, and other commands then accept it as --device cuda.",
    },
    "clear-cache": {
      type: "switch",
      configurable: false,
      conflictsWith: ["device"],
      summary: "Remove kept quantized weights instead",
      details: "`--quantize` quantizes anew at the next start.",
    },
  }),
});
