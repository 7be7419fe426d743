/** Puts the Python file into a folder with which transformers opens it. */
import type { JsonObject } from "../base/files.ts";
import { MODELING_FILE } from "../checkpoint/config.ts";
import { writeFile } from "../storage/write_file.ts";
import CODE from "./modeling_parscale.py" with { type: "text" };

/** Writes the file where the folder's `config.json` names it; returns its name then. */
export function writeModelingCode(folder: string, config: JsonObject): string[] {
  if (config.auto_map === undefined) return [];
  writeFile(`${folder}/${MODELING_FILE}`, CODE);
  return [MODELING_FILE];
}
