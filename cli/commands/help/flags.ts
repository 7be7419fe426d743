/** `parscale help [TOPIC]`: a command's complete help, a topic as a table, or the manual page. */
import { defineCommand } from "../../framework/command.ts";
import { SUMMARIES } from "../summaries.ts";

/** Topics that are tables. */
const TABLES = ["exit-codes", "formats", "environment", "presets"];

/** The command. */
export const command = defineCommand({
  name: "help",
  summary: SUMMARIES.help,
  description: "Without a topic, lists the commands. A command's name gives the same text as its " +
    "--help. The topic flags explains the flags of every command, and man is the manual page of the " +
    "whole program in roff. All other topics are tables and honour --format.",
  examples: [
    { text: "Everything about a command", line: "parscale help completions" },
    { text: "What an exit code means", line: "parscale help exit-codes" },
    { text: "The same for a program", line: "parscale help exit-codes --json" },
    {
      text: "Install the manual page",
      line: "parscale help man -o ~/.local/share/man/man1/parscale.1",
    },
  ],
  arguments: [{
    name: "TOPIC",
    summary: "A command or a topic",
    choices: ["flags", ...TABLES, "man", ...Object.keys(SUMMARIES)],
  }],
  flags: {},
});
