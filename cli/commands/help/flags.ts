/** `parscale help [TOPIC]`: a command's complete help, a topic as a table, or the manual page. */
import { commands } from "../mod.ts";
import { defineCommand } from "../../framework/command.ts";

/** Topics that are tables. */
const TABLES = ["exit-codes", "formats", "environment", "presets"];

/** The command. */
export const command = defineCommand({
  description: "Without a topic, lists the commands. A command's name gives the same text as its " +
    "--help. The topic flags explains the flags of every command, and man is the manual page of the " +
    "whole program in roff. All other topics are tables and honour --format.",
  examples: {
    "Everything about a command": "parscale help completions",
    "What an exit code means": "parscale help exit-codes",
    "The same for a program": "parscale help exit-codes --json",
    "Install the manual page": "parscale help man -o ~/.local/share/man/man1/parscale.1",
  },
  arguments: [{
    name: "TOPIC",
    summary: "A command or a topic",
    choices: ["flags", ...TABLES, "man", ...commands.map(({ name }) => name)],
  }],
  flags: {},
});
