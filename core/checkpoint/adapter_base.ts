/**
 * The backbone that an adapter names in its `config.json`, in the field that PEFT has for it: by name and
 * commit on the hub, or by path.
 */
import { basename, dirname, join, relative } from "node:path";
import { type ModelFiles, PEFT_CONFIG } from "../base/companions.ts";
import { type JsonObject, readJsonObject, realPath, statIfExists } from "../base/files.ts";
import { BACKBONE_KEY, BASE_KEY } from "./config.ts";
import { hubName } from "./model_files.ts";
import { ADAPTER_FILE, CONFIG_FILE } from "./open.ts";
import { isPeft } from "./peft.ts";

/**
 * Fields about the backbone in the `config.json` of an adapter. A path is relative to the adapter where the
 * two lie in one folder, at most `levels` above the adapter, which may be moved as a whole.
 */
export async function baseFields(
  { model, isGguf }: ModelFiles,
  sha256: string,
  adapter: string,
  levels = 2,
): Promise<JsonObject> {
  // A file of the hub's cache is a link to one without a name.
  const path = isGguf
    ? join(await realPath(dirname(model)), basename(model))
    : await realPath(model);
  const near = relative(await realPath(adapter), path).replaceAll("\\", "/");
  const isNear = new RegExp(`^(\\.\\./){1,${levels}}(?!\\.\\.(/|$))`).test(near);
  const base = hubName(path) ?? (isNear ? near : path);
  return { [BACKBONE_KEY]: sha256, [BASE_KEY]: base };
}

/** Returns whether a folder holds an adapter, of ours or of PEFT. */
export async function isAdapter(folder: string): Promise<boolean> {
  return await statIfExists(`${folder}/${ADAPTER_FILE}`) !== undefined || await isPeft(folder);
}

/** The path or name of an adapter's backbone; undefined for other folders, and adapters that name none. */
export async function baseOf(folder: string): Promise<string | undefined> {
  if (!await isAdapter(folder)) return undefined;
  const path = `${folder}/${await isPeft(folder) ? PEFT_CONFIG : CONFIG_FILE}`;
  if (!await statIfExists(path)) return undefined;
  const { [BASE_KEY]: base } = await readJsonObject(path);
  if (typeof base !== "string") return undefined;
  return base.startsWith("../") ? join(await realPath(folder), base) : base;
}
