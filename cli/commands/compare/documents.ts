/**
 * Result documents as evaluations: what `parscale eval --json` prints, one after the other on stdin.
 *
 * A document has means and no rows. Where its evaluation was kept by --out, and the folder is still
 * there, its rows are compared one by one; else the difference of two means is all there is, and its
 * interval is wider.
 */
import { isObject, type JsonObject } from "../../../core/base/files.ts";
import { DataError } from "../../../core/base/errors.ts";
import type { Io } from "../../output/io.ts";
import { type Evaluation, methodOf, readEvaluation, summariesOf } from "./methods.ts";

/** Layout of the documents that are read. */
const SCHEMA = "parscale.eval/1";

/** Reads all documents on stdin. */
export async function readDocuments(io: Io): Promise<Evaluation[]> {
  const texts = splitDocuments(await io.readText("-"));
  return await Promise.all(texts.map((text, i) => evaluationOf(text, `document ${i + 1}`)));
}

async function evaluationOf(text: string, name: string): Promise<Evaluation> {
  const { schema, config, results } = parsed(text, name);
  if (schema !== SCHEMA || !isObject(results)) {
    throw new DataError(
      `${name} of stdin is no evaluation: ${
        schema === undefined ? "it has no schema" : `its schema is ${JSON.stringify(schema)}`
      }, expected "${SCHEMA}"`,
      { hints: ["pipe in what `parscale eval --json` prints, once per evaluation"] },
    );
  }
  const out = isObject(config) && typeof config.out === "string" ? config.out : undefined;
  const summaries = summariesOf(results);
  const kept = out === undefined ? undefined : await readKept(out);
  // The folder may have been evaluated anew since.
  if (kept && JSON.stringify([...kept.summaries]) === JSON.stringify([...summaries])) return kept;
  return {
    method: methodOf(results, name),
    name: `${name} of stdin`,
    scores: undefined,
    summaries,
    timing: undefined,
  };
}

/** The evaluation in a folder, where there is a finished one. */
async function readKept(folder: string): Promise<Evaluation | undefined> {
  try {
    return await readEvaluation(folder);
  } catch (error) {
    if (error instanceof DataError) return undefined;
    throw error;
  }
}

function parsed(text: string, name: string): JsonObject {
  try {
    const value: unknown = JSON.parse(text);
    if (isObject(value)) return value;
  } catch {
    // said below
  }
  throw new DataError(
    `${name} of stdin is not valid JSON: ${JSON.stringify(text.slice(0, 40))}`,
    { hints: ["pipe in what `parscale eval --json` prints, once per evaluation"] },
  );
}

/** Cuts a text where one JSON object ends and whatever comes next begins. */
export function splitDocuments(text: string): string[] {
  const documents: string[] = [];
  let [start, depth, inString] = [0, 0, false];
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (inString) {
      if (c === "\\") i++;
      else if (c === '"') inString = false;
    } else if (c === '"') inString = true;
    else if (c === "{") depth++;
    else if (c === "}" && --depth === 0) {
      documents.push(text.slice(start, i + 1).trim());
      start = i + 1;
    }
  }
  const rest = text.slice(start).trim();
  return rest === "" ? documents : [...documents, rest];
}
