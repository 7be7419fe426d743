/**
 * The manual page, one for all commands, in roff's `man` package. In roff a line that begins with a dot or
 * a quote is a request, a backslash begins an escape, and a plain hyphen is typeset as one that cannot be
 * pasted into a shell; so all text passes through `escapeRoff`.
 */
import type { Command } from "./command.ts";
import type { Row } from "../output/table.ts";
import { VERSION } from "../../core/base/version.ts";
import { commonFlags } from "./common.ts";
import { argumentRows, flagUsage, grouped, notes, usageLine } from "./help.ts";
import type { Flag, FlagTable } from "./table.ts";

/** A table of two columns with the heading it stands under. */
export interface ManTable {
  readonly title: string;
  readonly rows: readonly Row[];
}

const SPECIAL: Readonly<Record<string, string>> = {
  "\\": "\\e",
  "-": "\\-",
  "…": "...",
  "`": "\\(ga",
  "'": "\\(aq",
  "^": "\\(ha",
  "~": "\\(ti",
};

/** Text as roff takes it literally, wherever in a line it stands. */
export function escapeRoff(text: string): string {
  const escaped = text.replace(
    /[\\\-…`'^~]|[^\x20-\x7e\n]/gu,
    (character) =>
      SPECIAL[character] ??
        `\\[u${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}]`,
  );
  return escaped.replace(/^\./gm, "\\&.");
}

function bold(text: string): string {
  return `\\fB${escapeRoff(text)}\\fR`;
}

/** A paragraph with a hanging tag. */
function tagged(tag: string, lines: readonly string[]): string {
  return [".TP", bold(tag), ...lines.map(escapeRoff)].join("\n");
}

function paragraphs(text: string): string {
  return text.split(/\n\s*\n/).map((part) => `.PP\n${escapeRoff(part.replace(/\s+/g, " ").trim())}`)
    .join("\n");
}

/** Lines as they stand, for the shell. */
function literal(lines: readonly string[]): string {
  return [".PP", ".RS 4", ".nf", ...lines.map(escapeRoff), ".fi", ".RE"].join("\n");
}

function flagEntry([name, flag]: readonly [string, Flag]): string {
  const note = notes(name, flag);
  const text = `${flag.summary}. ${flag.details}`;
  return tagged(flagUsage(name, flag), note === "" ? [text] : [text, note]);
}

function flagEntries(flags: FlagTable): string[] {
  return [...grouped(flags)].flatMap(([group, entries]) => [
    `.PP\n${bold(`${group}:`)}`,
    ...entries.map(flagEntry),
  ]);
}

function commandSection(command: Command): string {
  const { name, summary, description, examples, flags, presets = {} } = command;
  return [
    `.SS ${escapeRoff(name)}`,
    escapeRoff(`${summary}.`),
    literal([usageLine(command).replace(/^Usage: /, "")]),
    paragraphs(description),
    ...argumentRows(command).map(([name, text]) => tagged(name, [text])),
    ...flagEntries(flags),
    ...Object.entries(presets).map(([name, { summary }]) => tagged(`--preset ${name}`, [summary])),
    `.PP\n${bold("Examples:")}`,
    literal(Object.entries(examples).flatMap(([text, line]) => ["", `# ${text}`, line]).slice(1)),
  ].join("\n");
}

function tableSection({ title, rows }: ManTable): string {
  const entries = rows.map((row) => {
    const [term, ...rest] = Object.values(row).filter((value) => value !== null).map(String);
    return tagged(term!, rest);
  });
  return [`.SH ${title}`, ...entries].join("\n");
}

/** The whole page. */
export function manPage(commands: readonly Command[], tables: readonly ManTable[]): string {
  return [
    `.TH PARSCALE 1 "" "parscale ${VERSION}" "User Commands"`,
    '.\\" Made by `parscale help man` from the flag tables.',
    // Names that are broken or stretched are hard to find again.
    ".nh\n.ad l",
    ".SH NAME",
    escapeRoff("parscale - parallel scaling of language models"),
    ".SH SYNOPSIS",
    `.B parscale\n.I COMMAND\n${escapeRoff("[flags] [arguments]")}`,
    ".SH DESCRIPTION",
    escapeRoff(
      "A ParScale model runs P learned variations of its input through the same weights at once " +
        "and mixes the P outputs per token. parscale makes such models from Qwen and Llama checkpoints, " +
        "trains, evaluates, runs and measures them. Results go to stdout, everything else to " +
        "stderr; a path of - is stdin or stdout.",
    ),
    ".SH COMMANDS",
    ...commands.map(commandSection),
    ".SH COMMON FLAGS",
    escapeRoff("Understood by every command that does not have its own flag of this name."),
    ...flagEntries(commonFlags),
    ...tables.map(tableSection),
  ].join("\n") + "\n";
}
