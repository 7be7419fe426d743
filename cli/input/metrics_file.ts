/** Reads `metrics.jsonl` of a training run: one object per step. */
import { DataError } from "../../core/base/errors.ts";
import {
  type JsonObject,
  jsonValue,
  readRegularText,
  statIfExists,
} from "../../core/base/files.ts";
import { readRows } from "./rows.ts";

/** The rows of a file. */
export async function readMetrics(path: string): Promise<JsonObject[]> {
  if (!await statIfExists(path)) {
    throw new DataError(`no such file: "${path}"`, {
      hints: ["pass a folder written by `parscale train`"],
    });
  }
  return await parseMetrics(await readRegularText(path), `"${path}"`);
}

/** The rows of a text, called `name` in messages; a last line that is still being written is left out. */
export async function parseMetrics(text: string, name: string): Promise<JsonObject[]> {
  const lines = text.split("\n");
  if (jsonValue(lines.at(-1)!) === undefined) lines.pop();
  return await Array.fromAsync(readRows(lines, name), ({ fields }) => fields);
}
