/** `parscale help [TOPIC]`: a command's complete help, or a topic as a table. */
import { commands } from "../mod.ts";
import { defineCommand } from "../../framework/command.ts";

/** Topics that are tables. */
const TABLES = ["exit-codes", "formats", "environment", "presets"];

/** The command. */
export const command = defineCommand({
  description: "Without a topic, lists the commands. A command's name gives the same text as its " +
    "--help. The topic flags explains the flags of every command. All other topics are tables and " +
    "honour --format.",
  examples: {
    "Everything about a command": "parscale help completions",
    "What an exit code means": "parscale help exit-codes",
    "The same for a program": "parscale help exit-codes --json",
  },
  arguments: [{
    name: "TOPIC",
    summary: "A command or a topic",
    choices: ["flags", ...TABLES, ...commands.map(({ name }) => name)],
  }],
  flags: {},
});
