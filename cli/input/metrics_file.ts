/** Reads `metrics.jsonl` of a training run: one object per step. */
import { DataError } from "../../core/base/errors.ts";
import { isObject, type JsonObject, readRegularText, statIfExists } from "../../core/base/files.ts";

/** The rows of a file. */
export async function readMetrics(path: string): Promise<JsonObject[]> {
  if (!await statIfExists(path)) {
    throw new DataError(`no such file: "${path}"`, {
      hints: ["pass a folder written by `parscale train`"],
    });
  }
  return parseMetrics(await readRegularText(path), `"${path}"`);
}

/** The rows of a text, called `name` in messages; a last line that is still being written is left out. */
export function parseMetrics(text: string, name: string): JsonObject[] {
  const lines = text.split("\n");
  const unfinished = parseLine(lines.at(-1)!) === undefined;
  const complete = unfinished ? lines.slice(0, -1) : lines;
  const rows: JsonObject[] = [];
  for (const [i, line] of complete.entries()) {
    if (line.trim() === "") continue;
    const row = parseLine(line);
    if (!isObject(row)) {
      throw new DataError(`line ${i + 1} of ${name} is not valid JSON`);
    }
    rows.push(row);
  }
  return rows;
}

function parseLine(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
