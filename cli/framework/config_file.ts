/**
 * Reads a `--config` file in JSON (comments allowed), YAML or TOML, whose keys are long flag names, and the
 * user's own file, which has a table of them per command.
 *
 * A result document is accepted too: its `config` member holds exactly such an object, so any run
 * can be repeated from what it printed. Which keys exist is for `resolve` to say.
 */
import { DataError, UsageError } from "../../core/base/errors.ts";
import { PLATFORM } from "../../core/base/platform/mod.ts";
import { suggestionHint } from "./suggest.ts";

/** Largest config file; flags need a few hundred bytes, result documents with rows more. */
const MAX_CONFIG_BYTES = 64e6;

/** Blanks comments outside strings; positions stay, so that parse errors point at the right place. */
export function stripComments(text: string): string {
  const tokens = /"(?:\\.|[^"\\])*"|\/\/[^\n]*|\/\*[^]*?\*\//g;
  return text.replace(
    tokens,
    (token) => token.startsWith('"') ? token : token.replace(/[^\n]/g, " "),
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

interface Syntax {
  readonly name: string;
  readonly endings: RegExp;
  /** Flags as this syntax writes them. */
  readonly example: string;
  /** Loads the parser, which few runs need. */
  readonly parser: () => Promise<(text: string) => unknown>;
}

const JSON_SYNTAX: Syntax = {
  name: "JSON",
  endings: /\.jsonc?$/i,
  example: '{"flag": value}',
  parser: () => Promise.resolve((text) => JSON.parse(stripComments(text))),
};

/** By the ending of a file; JSON for any other. */
const SYNTAXES: readonly Syntax[] = [JSON_SYNTAX, {
  name: "YAML",
  endings: /\.ya?ml$/i,
  example: "flag: value",
  parser: async () => (await import("@std/yaml/parse")).parse,
}, {
  name: "TOML",
  endings: /\.toml$/i,
  example: "flag = value",
  parser: async () => (await import("@std/toml/parse")).parse,
}];

async function parseObject(text: string, path: string): Promise<Record<string, unknown>> {
  const { name, example, parser } = SYNTAXES.find(({ endings }) => endings.test(path)) ??
    JSON_SYNTAX;
  const parse = await parser();
  let content: unknown;
  try {
    content = parse(text);
    JSON.stringify(content); // fails for YAML that holds itself
  } catch (error) {
    // The lines after the first show the place, which has no room in a message.
    const reason = (error as Error).message.split("\n")[0]!.replace(/:$/, "");
    throw new UsageError(`config "${path}" is not valid ${name}: ${reason}`, {
      hints: ["a config is JSON, or YAML or TOML in a file that ends in .yaml or .toml"],
    });
  }
  if (isObject(content)) return content;
  throw new UsageError(`config "${path}" holds no flags by name`, {
    hints: [`write it as ${example}`],
  });
}

/** The flag values in `text`, the content of the file at `path`, for a command. */
export async function parseConfig(
  text: string,
  path: string,
  command: string,
): Promise<Record<string, unknown>> {
  const content = await parseObject(text, path);
  const isDocument = typeof content.schema === "string" && isObject(content.config);
  if (!isDocument) return content;
  if (content.command !== command) {
    throw new UsageError(
      `config "${path}" belongs to \`${content.command}\`, not to \`${command}\``,
    );
  }
  return content.config as Record<string, unknown>;
}

/** Reads and parses the file at `path`. */
export async function readConfig(path: string, command: string): Promise<Record<string, unknown>> {
  return await parseConfig(await readText(path), path, command);
}

/**
 * The user's flags for a command, from `parscale/config.json`, `.yaml` or `.toml` in the folder of settings:
 * the first of them that is there. Undefined without one, or where it names no flags of the command.
 */
export async function readUserConfig(
  command: string,
  env: (name: string) => string | undefined,
  commands: readonly string[],
): Promise<{ path: string; content: Record<string, unknown> } | undefined> {
  const folder = PLATFORM.settings(env);
  if (folder === undefined) return undefined;
  const paths = ["json", "yaml", "toml"].map((ending) => `${folder}/parscale/config.${ending}`);
  const present = await Promise.all(paths.map((path) => Deno.stat(path).catch(() => undefined)));
  const path = paths.find((_, i) => present[i] !== undefined);
  if (path === undefined) return undefined;
  const tables = await parseObject(await readText(path), path);
  // YAML reads a table of comments alone as null.
  const flag = Object.keys(tables).find((key) => tables[key] !== null && !isObject(tables[key]));
  if (flag !== undefined && commands.includes(flag)) {
    throw new UsageError(`"${flag}" in config "${path}" holds no flags by name`);
  }
  if (flag !== undefined) {
    throw new UsageError(`"${flag}" in config "${path}" belongs to no command`, {
      hints: [`put it in a table named after its command, such as "${command}"`],
    });
  }
  const unknown = Object.keys(tables).find((name) => !commands.includes(name));
  if (unknown !== undefined) {
    throw new UsageError(`config "${path}" has a table for an unknown command: "${unknown}"`, {
      hints: [suggestionHint(unknown, commands) ?? "`parscale help` lists the commands"],
    });
  }
  const content = tables[command];
  return isObject(content) ? { path, content } : undefined;
}

async function readText(path: string): Promise<string> {
  const { readRegularText, statIfExists } = await import("../../core/base/files.ts");
  try {
    return await readRegularText(path, MAX_CONFIG_BYTES);
  } catch (error) {
    if (!await statIfExists(path)) throw new UsageError(`no such config file: "${path}"`);
    if (!(error instanceof DataError)) throw error;
    throw new UsageError(`cannot read config "${path}"`, { cause: error, hints: error.hints });
  }
}
