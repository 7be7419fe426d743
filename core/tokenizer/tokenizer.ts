/**
 * Opens the tokenizer of a model folder.
 *
 * A folder has `tokenizer.json`, or `vocab.json` and `merges.txt` as older Qwen folders do. The own
 * encoder serves the layouts of Qwen, Llama 3, SmolLM and GPT-2, the library any other. A GGUF file has
 * the same files in its metadata.
 */
import {
  isObject,
  type JsonObject,
  parseJsonObject,
  readRegularText,
  show,
  utf8Text,
} from "../base/files.ts";
import { openModelFiles } from "../checkpoint/model_files.ts";
import {
  isGgufName,
  type ModelFiles,
  type TokenizerLists,
  TOOL_TEMPLATE_FILE,
} from "../base/companions.ts";
import { DataError } from "../base/errors.ts";
import { type AddedToken, addNamedTokens, readAddedTokens } from "./added_tokens.ts";
import { ByteLevelBpe } from "./byte_level_bpe.ts";
import {
  type ByteLevelLayout,
  byteLevelLayout,
  takeApart,
  type TokenizerFile,
} from "./file_layout.ts";
import { openLibraryTokenizer } from "./library_tokenizer.ts";
import type { MergeTable } from "./merges.ts";
import {
  mergesOf,
  NotByteLevel,
  readMergeLines,
  readMerges,
  readVocabulary,
  vocabularyOf,
} from "./table_reader.ts";
import type { Tokenizer, TokenizerInfo } from "./types.ts";
import type { Vocabulary } from "./vocabulary.ts";

export { type ChatMessage, renderChat } from "./chat.ts";
export type { StreamDecoder, Tokenizer } from "./types.ts";

/** Largest files of a tokenizer and of a template; the largest known have 33 MB and 20 kB. */
const MAX_TABLE_BYTES = 256e6, MAX_TEMPLATE_BYTES = 4e6;

/** All that both file layouts share. */
interface Common {
  readonly files: ModelFiles;
  readonly config: JsonObject;
  readonly info: TokenizerInfo;
  readonly modelVocabSize: number;
}

/** Options of opening a tokenizer. */
export interface TokenizerOptions {
  /** File of a Jinja template for messages, in place of the model's own. */
  readonly chatTemplate?: string | undefined;
  /** Variables of the template, such as `enable_thinking`, for every conversation. */
  readonly templateVariables?: Readonly<Record<string, unknown>> | undefined;
}

/** Opens the tokenizer of a folder, a GGUF file or the files of either. */
export async function openTokenizer(
  model: string | ModelFiles,
  { chatTemplate, templateVariables }: TokenizerOptions = {},
): Promise<Tokenizer> {
  const files = typeof model === "string" ? await openModelFiles(model) : model;
  const { has: exists, model: directory } = files;
  const config = await readConfig(files);
  const common: Common = {
    files,
    config,
    info: {
      directory,
      ...(chatTemplate === undefined
        ? await findChatTemplates(files, directory, config)
        : { chatTemplate: await readRegularText(chatTemplate, MAX_TEMPLATE_BYTES) }),
      ...(templateVariables && { templateVariables }),
      namedTokens: findNamedTokens(config),
    },
    modelVocabSize: toCount((await files.json("config.json")).vocab_size),
  };
  if (await exists("tokenizer.json")) return openTokenizerJson(common);
  const [vocabulary, merges] = [await exists("vocab.json"), await exists("merges.txt")];
  if (vocabulary && merges) return openVocabularyAndMerges(common);
  if (isGgufName(directory)) {
    throw new DataError(`"${directory}" has no tokenizer`, {
      hints: ["write a folder of it with `parscale convert`, and copy tokenizer.json into that"],
    });
  }
  const [found, missing] = vocabulary
    ? ["vocab.json without merges.txt", "merges.txt"]
    : merges
    ? ["merges.txt without vocab.json", "vocab.json"]
    : ["neither tokenizer.json nor vocab.json and merges.txt", "tokenizer.json"];
  throw new DataError(`"${directory}" has no tokenizer: ${found}`, {
    hints: [`copy ${missing} into the folder`],
  });
}

/** `tokenizer_config.json`; older folders have a part of it in two other files, as in transformers. */
async function readConfig({ has, json }: ModelFiles): Promise<JsonObject> {
  const config = await json("tokenizer_config.json");
  if (config.added_tokens_decoder !== undefined) return config;
  const named = { ...config, ...await json("special_tokens_map.json") };
  const extra = named.additional_special_tokens;
  const special = new Set<unknown>(Object.values(findNamedTokens(named)));
  for (const token of Array.isArray(extra) ? extra : []) special.add(contentOf(token));
  // A tokenizer.json lists its added tokens itself.
  const listed = await has("tokenizer.json") ? {} : await json("added_tokens.json");
  const added = Object.entries(listed).map(([content, id]) => [
    String(id),
    { content, special: special.has(content) },
  ]);
  return { ...named, added_tokens_decoder: Object.fromEntries(added) };
}

async function openTokenizerJson(common: Common): Promise<Tokenizer> {
  const { files, info: { directory } } = common;
  const path = `${directory}/tokenizer.json`;
  const lists = files.lists?.();
  const source = lists ? undefined : await files.read("tokenizer.json", MAX_TABLE_BYTES);
  const file = lists ?? takeApart(source!, path);
  const paths = { settings: path, config: `${directory}/tokenizer_config.json` };
  const addedTokens = readAddedTokens(file.settings, common.config, paths);
  const layout = byteLevelLayout(file.settings);
  const tables = layout && readTables(file, layout, path);
  if (tables) return buildByteLevel(common, { ...tables, layout }, addedTokens, path);
  const json = parseJsonObject(source ?? await files.read("tokenizer.json"), path);
  const all = addNamedTokens(addedTokens, common.config, vocabularyIn(json.model));
  return openLibraryTokenizer({ ...common, json, addedTokens: all });
}

/** Ids of a vocabulary that is an object, or a list of tokens with scores; the library checks it. */
function vocabularyIn(model: unknown): Pick<Vocabulary, "size" | "idOf"> {
  const vocab = (model as { vocab?: unknown[] | Record<string, number> } | null)?.vocab ?? {};
  const entries = Array.isArray(vocab)
    ? vocab.map((entry, id): [string, number] => [(entry as [string] | null)?.[0] ?? "", id])
    : Object.entries(vocab);
  const ids = new Map(entries);
  return {
    size: ids.values().reduce((size, id) => Math.max(size, id + 1), 0),
    idOf: (token) => ids.get(token),
  };
}

/** The layout of Qwen2, 2.5 and 3. */
const QWEN: ByteLevelLayout = {
  words: { expression: "qwen", digits: 1 },
  isNfc: true,
  ignoresMerges: false,
  dropsUnknown: false,
  frame: { before: [], after: [] },
};

interface Tables {
  readonly vocabulary: Vocabulary;
  readonly merges: MergeTable;
}

/** The tables of a byte-level file; undefined if its tokens are not made of bytes. */
function readTables(
  file: TokenizerFile | TokenizerLists,
  layout: ByteLevelLayout,
  path: string,
): Tables | undefined {
  const isList = "ids" in file;
  if (!isList && !(file.vocabulary && file.merges)) return undefined;
  try {
    const vocabulary = isList ? vocabularyOf(file, path) : readVocabulary(file.vocabulary!);
    // Vocabularies without all 256 bytes go to @huggingface/tokenizers.
    if (!layout.dropsUnknown && vocabulary.byteIds.includes(-1)) return undefined;
    const merges = isList ? mergesOf(file, vocabulary, path) : readMerges(file.merges!, vocabulary);
    return { vocabulary, merges };
  } catch (error) {
    if (error instanceof NotByteLevel) return undefined;
    throw error;
  }
}

/** These two files say nothing about the rest, which is taken to be as in Qwen2. */
async function openVocabularyAndMerges(common: Common): Promise<Tokenizer> {
  const { config, files, info: { directory } } = common;
  const className = config.tokenizer_class ?? "Qwen2Tokenizer";
  if (typeof className !== "string" || !/^Qwen2Tokenizer(Fast)?$/.test(className)) {
    throw new DataError(
      `"${directory}" has tokenizer_class ${show(className)}, which needs a tokenizer.json`,
      { hints: ["copy tokenizer.json into the folder, which describes any kind of tokenizer"] },
    );
  }
  const path = `${directory}/vocab.json`;
  const configPath = `${directory}/tokenizer_config.json`;
  const addedTokens = readAddedTokens({}, config, { settings: configPath, config: configPath });
  const spanOf = async (name: string) => {
    const source = await files.read(name, MAX_TABLE_BYTES);
    return { source, from: 0, to: source.length, path: `${directory}/${name}` };
  };
  try {
    const vocabulary = readVocabulary(await spanOf("vocab.json"));
    const merges = readMergeLines(await spanOf("merges.txt"), vocabulary);
    if (vocabulary.byteIds.includes(-1)) throw new NotByteLevel();
    return buildByteLevel(common, { vocabulary, merges, layout: QWEN }, addedTokens, path);
  } catch (error) {
    if (!(error instanceof NotByteLevel)) throw error;
    throw new DataError(`"${path}" is not a byte-level vocabulary with all 256 bytes`, {
      hints: ["copy tokenizer.json into the folder, which describes any kind of tokenizer"],
    });
  }
}

/** Builds the own encoder after checking that added tokens and vocabulary agree. */
function buildByteLevel(
  { info, config, modelVocabSize }: Common,
  tables: Tables & { readonly layout: ByteLevelLayout },
  listed: readonly AddedToken[],
  path: string,
): Tokenizer {
  const addedTokens = addNamedTokens(listed, config, tables.vocabulary);
  for (const { id, content } of addedTokens) {
    const sameText = tables.vocabulary.idOf(content) ?? id;
    const sameId = tables.vocabulary.tokenText(id) ?? content;
    if (sameText === id && sameId === content) continue;
    throw new DataError(
      `added token ${show(content)} in "${path}" has id ${id}, and in the vocabulary ${
        sameText === id ? `that is ${show(sameId)}` : `it has id ${sameText}`
      }`,
    );
  }
  return new ByteLevelBpe({ ...tables, addedTokens, info, modelVocabSize });
}

function toCount(value: unknown): number {
  return typeof value === "number" && Number.isInteger(value) && value > 0 ? value : 0;
}

/** The files of templates if there are any, else the field, which may hold several templates by name. */
async function findChatTemplates(
  files: ModelFiles,
  directory: string,
  { chat_template: field }: JsonObject,
): Promise<Pick<TokenizerInfo, "chatTemplate" | "toolTemplate">> {
  const textOf = async (name: string) =>
    await files.has(name)
      ? utf8Text(await files.read(name, MAX_TEMPLATE_BYTES), `"${directory}/${name}"`)
      : undefined;
  const main = await textOf("chat_template.jinja") ?? field ?? null;
  const forTools = await textOf(TOOL_TEMPLATE_FILE);
  const tools = forTools === undefined ? {} : { toolTemplate: forTools };
  if (typeof main === "string") return { chatTemplate: main, ...tools };
  if (main === null) return tools;
  const named = (name: string) => {
    const entry = Array.isArray(field) &&
      field.find((each) => isObject(each) && each.name === name);
    const template = isObject(field) ? field[name] : isObject(entry) ? entry.template : undefined;
    return typeof template === "string" ? template : undefined;
  };
  const chatTemplate = named("default"), toolTemplate = named("tool_use");
  if (chatTemplate !== undefined) {
    return { chatTemplate, ...(toolTemplate && { toolTemplate }), ...tools };
  }
  throw new DataError(
    `chat_template in "${directory}/tokenizer_config.json" must be text, or texts by name with one ` +
      `named "default", not ${show(field)}`,
  );
}

/** `eos_token` and its like, written as text or as an object with `content`. */
function findNamedTokens(config: JsonObject): Record<string, string> {
  const named: Record<string, string> = {};
  for (const [role, value] of Object.entries(config)) {
    if (!role.endsWith("_token")) continue;
    const content = contentOf(value);
    if (typeof content === "string") named[role] = content;
  }
  return named;
}

function contentOf(token: unknown): unknown {
  return isObject(token) ? token.content : token;
}
