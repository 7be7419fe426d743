/**
 * Reads a `--config` file: a JSON object, comments allowed, whose keys are long flag names.
 *
 * A result document is accepted too: its `config` member holds exactly such an object, so any run
 * can be repeated from what it printed. Which keys exist is for `resolve` to say.
 */
import { DataError, UsageError } from "../../core/base/errors.ts";

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

/** The flag values in `text`, the content of the file at `path`, for a command. */
export function parseConfig(
  text: string,
  path: string,
  command: string,
): Record<string, unknown> {
  let content: unknown;
  try {
    content = JSON.parse(stripComments(text));
  } catch (error) {
    throw new UsageError(`config "${path}" is not valid JSON`, { cause: error });
  }
  if (!isObject(content)) {
    throw new UsageError(`config "${path}" is not a JSON object`, {
      hints: ['write it as {"flag": value}'],
    });
  }
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
  const { readRegularText, statIfExists } = await import("../../core/base/files.ts");
  let text: string;
  try {
    text = await readRegularText(path, MAX_CONFIG_BYTES);
  } catch (error) {
    if (!await statIfExists(path)) throw new UsageError(`no such config file: "${path}"`);
    if (!(error instanceof DataError)) throw error;
    throw new UsageError(`cannot read config "${path}"`, { cause: error, hints: error.hints });
  }
  return parseConfig(text, path, command);
}
