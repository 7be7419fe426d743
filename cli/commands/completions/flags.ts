/** `parscale completions SHELL`: a completion script on stdout. */
import { SHELLS } from "../../framework/completions.ts";
import { defineCommand } from "../../framework/command.ts";

/** The command. */
export const command = defineCommand({
  description: "The script is static text made from the flag tables, so completing never starts " +
    "the program. Print it again after an update.",
  examples: {
    "Complete in this bash session": "source <(parscale completions bash)",
    "Complete in every fish session":
      "parscale completions fish -o ~/.config/fish/completions/parscale.fish",
  },
  arguments: [{ name: "SHELL", summary: "Shell to serve", required: true, choices: SHELLS }],
  flags: {},
});
