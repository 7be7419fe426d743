/**
 * Reads a `--config` file in JSON or YAML, whose keys are long flag names.
 *
 * A result document is accepted too: its `config` member holds exactly such an object, so any run
 * can be repeated from what it printed. Which keys exist is for `resolve` to say.
 */
import { DataError, UsageError } from "../../core/base/errors.ts";

/** Largest config file; flags need a few hundred bytes, result documents with rows more. */
const MAX_CONFIG_BYTES = 64e6;

/** Most values in it, and most bytes of YAML, whose parser is slow with many keys. */
const MAX_VALUES = 1e6, MAX_YAML_BYTES = 1e5;

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

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
  const isYaml = /\.ya?ml$/i.test(path), name = isYaml ? "YAML" : "JSON";
  if (isYaml && text.length > MAX_YAML_BYTES) {
    throw new UsageError(`config "${path}" has more than ${MAX_YAML_BYTES} bytes of YAML`, {
      hints: ["write long configs as JSON"],
    });
  }
  const parse = isYaml ? (await import("@std/yaml/parse")).parse : JSON.parse;
  let content: unknown;
  try {
    content = parse(text);
    requireSmall(content);
  } catch (error) {
    // The lines after the first show the place, which has no room in a message.
    const reason = (error as Error).message.split("\n")[0]!.replace(/:$/, "");
    throw new UsageError(`config "${path}" is not valid ${name}: ${reason}`, {
      hints: ["a config is JSON, or YAML in a file that ends in .yaml, which may have comments"],
    });
  }
  if (isObject(content)) return content;
  throw new UsageError(`config "${path}" holds no flags by name`, {
    hints: [`write it as ${isYaml ? "flag: value" : '{"flag": value}'}`],
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
