/**
 * Reads a `--config` file: a JSON object, comments allowed, whose keys are long flag names.
 *
 * A result document is accepted too: its `config` member holds exactly such an object, so any run
 * can be repeated from what it printed. Which keys exist is for `resolve` to say.
 */
import { UsageError } from "../../core/base/errors.ts";

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
    throw new UsageError(`Cannot read config "${path}": found invalid JSON, expected an object`, {
      cause: error,
    });
  }
  if (!isObject(content)) {
    throw new UsageError(`Cannot read config "${path}": found no object, expected {"flag": value}`);
  }
  const isDocument = typeof content.schema === "string" && isObject(content.config);
  if (!isDocument) return content;
  if (content.command !== command) {
    throw new UsageError(
      `Cannot use config "${path}": found a document of "${content.command}", ` +
        `expected one of "${command}"`,
    );
  }
  return content.config as Record<string, unknown>;
}

/** Reads and parses the file at `path`. */
export async function readConfig(path: string, command: string): Promise<Record<string, unknown>> {
  let text: string;
  try {
    text = await Deno.readTextFile(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotCapable) throw error;
    throw new UsageError(`Cannot read config "${path}": found no readable file`, { cause: error });
  }
  return parseConfig(text, path, command);
}
