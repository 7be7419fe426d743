/**
 * Reads a `--config` file in JSON (comments allowed) or YAML, whose keys are long flag names.
 *
 * A result document is accepted too: its `config` member holds exactly such an object, so any run
 * can be repeated from what it printed. Which keys exist is for `resolve` to say.
 */
import { DataError, UsageError } from "../../core/base/errors.ts";

/** Largest config file; flags need a few hundred bytes, result documents with rows more. */
const MAX_CONFIG_BYTES = 64e6;

/** Most values in it, and most bytes of YAML, whose parser is slow with many keys. */
const MAX_VALUES = 1e6, MAX_YAML_BYTES = 1e5;

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
}];

/** Counts values as they would be written out: a line of YAML may stand for billions, or hold itself. */
function requireSmall(content: unknown): void {
  let left = MAX_VALUES;
  const count = (value: unknown, depth: number): void => {
    if (--left < 0) throw new Error(`it holds more than ${MAX_VALUES} values`);
    if (depth > 100) throw new Error("it nests too deep, or holds itself");
    if (typeof value !== "object" || value === null) return;
    for (const one of Object.values(value)) count(one, depth + 1);
  };
  count(content, 0);
}

async function parseObject(text: string, path: string): Promise<Record<string, unknown>> {
  const { name, example, parser } = SYNTAXES.find(({ endings }) => endings.test(path)) ??
    JSON_SYNTAX;
  if (name !== "JSON" && text.length > MAX_YAML_BYTES) {
    throw new UsageError(`config "${path}" has more than ${MAX_YAML_BYTES} bytes of ${name}`, {
      hints: ["write long configs as JSON"],
    });
  }
  const parse = await parser();
  let content: unknown;
  try {
    content = parse(text);
    requireSmall(content);
  } catch (error) {
    // The lines after the first show the place, which has no room in a message.
    const reason = (error as Error).message.split("\n")[0]!.replace(/:$/, "");
    throw new UsageError(`config "${path}" is not valid ${name}: ${reason}`, {
      hints: ["a config is JSON, or YAML in a file that ends in .yaml"],
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
