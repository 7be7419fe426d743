/**
 * The README.md of a folder that `convert` or `train` writes: what the model is, how it was made, and how
 * to run it here, in transformers and in ONNX Runtime.
 */
import { opensInTransformers } from "../checkpoint/config.ts";
import { basename } from "node:path";
import type { QuantizedFormat } from "../quant/codes.ts";
import { isParScale, type ModelConfig } from "../model/config.ts";
import { countParameters } from "../model/parameters.ts";
import type { ModelFiles } from "../base/companions.ts";
import { hubName } from "../checkpoint/model_files.ts";

export const CARD_FILE = "README.md";

/** Content of a card. */
export interface ModelCard {
  /** Folder that the card is for. */
  readonly folder: string;
  readonly config: ModelConfig;
  /** Checkpoint folder it was made from; undefined for weights from a random start. */
  readonly source: ModelFiles | undefined;
  /** Hash of the backbone's weights, where it is known. */
  readonly backboneSha256?: string | undefined;
  /** True if the folder has ParScale parameters alone. */
  readonly isAdapter?: boolean;
  readonly quantization?: QuantizedFormat;
  /** False if the folder lacks the Python file for transformers, where there is one. */
  readonly hasCode?: boolean;
  /** Lines about its training. */
  readonly training?: readonly string[];
  /** Results; a line each. */
  readonly evaluation?: readonly string[];
}

/** Text of the card, in Markdown with the front matter of the hub. */
export async function modelCard(card: ModelCard): Promise<string> {
  const name = basename(card.folder);
  const base = card.source === undefined ? undefined : nameOf(card.source.model);
  const licence = card.source === undefined ? [] : await licenceOf(card.source);
  return [
    frontMatter(base, licence),
    `# ${name}`,
    summary(card, base),
    ...section("Training", card.training),
    ...section("Evaluation", card.evaluation),
    "## How to run it",
    runHere(card),
    ...inTransformers(card),
    ...inOnnxRuntime(card),
  ].join("\n\n") + "\n";
}

/** The name on the hub without the commit, or that of the folder or file: a path says who made it. */
function nameOf(path: string): string {
  return hubName(path)?.replace(/@[^:]+/, "") ?? basename(path);
}

/** Lines of the front matter of a model's own card that name its licence. */
async function licenceOf(files: ModelFiles): Promise<readonly string[]> {
  if (!await files.has(CARD_FILE)) return [];
  const card = await files.read(CARD_FILE).catch(() => new Uint8Array()); // may be odd, and is not needed
  const [, head = ""] = /^---\r?\n(.*?)\r?\n---/s.exec(new TextDecoder().decode(card)) ?? [];
  return head.match(/^license(_name|_link)?: *\S[^\r\n]*/gm) ?? [];
}

function frontMatter(base: string | undefined, licence: readonly string[]): string {
  const known = base?.includes("/") ? [`base_model: ${base.split(":")[0]}`] : [];
  return ["---", ...licence, ...known, "tags:", "  - parscale", "---"].join("\n");
}

function summary(card: ModelCard, base: string | undefined): string {
  const { config, quantization, backboneSha256 } = card;
  const { total, introduced } = countParameters(config);
  const what = card.isAdapter ? `ParScale parameters for \`${base}\`` : `A ${config.family} model`;
  const rows = [
    ["parallel streams (P)", config.streams],
    ...(config.prefix ? [["prefix tokens per stream and layer", config.prefixTokens]] : []),
    ...(config.streams > 1
      ? [["aggregation", `${config.aggregator}, smoothing ${config.smoothing}`]]
      : []),
    ...(config.loraRank > 0 ? [["LoRA rank per stream", config.loraRank]] : []),
    ...(card.isAdapter ? [] : [["parameters", total]]),
    ...(isParScale(config) ? [["ParScale parameters", introduced]] : []),
    ["context", `${config.maxPositionEmbeddings} tokens`],
    ["weights", quantization ? formatText(quantization) : config.dtype],
    ...(base && !card.isAdapter ? [["made from", `\`${base}\``]] : []),
    ...(backboneSha256 ? [["SHA-256 of the backbone", `\`${backboneSha256}\``]] : []),
  ];
  return [
    `${what}, written by parscale ([ParScale paper](https://arxiv.org/abs/2505.10475)).`,
    "",
    "| | |",
    "|---|---|",
    ...rows.map(([name, value]) => `| ${name} | ${value} |`),
  ].join("\n");
}

function formatText({ kind, block }: QuantizedFormat): string {
  return `${kind === "q8" ? 8 : 4} bits, block size ${block}`;
}

function section(title: string, lines: readonly string[] = []): string[] {
  return lines.length === 0 ? [] : [`## ${title}`, lines.map((line) => `- ${line}`).join("\n")];
}

function runHere({ folder }: ModelCard): string {
  const model = word(basename(folder));
  return code("sh", [
    `parscale generate --model ${model} --prompt "The capital of France is"`,
    `parscale serve --model ${model}`,
  ]);
}

/** Quotes a name for the shell where that needs it. */
function word(name: string): string {
  return /^[\w./:@%+,-]+$/.test(name) ? name : `'${name.replaceAll("'", `'\\''`)}'`;
}

function inTransformers(card: ModelCard): string[] {
  const isPlain = !isParScale(card.config);
  const { hasCode = opensInTransformers(card.config) } = card;
  if (card.isAdapter || card.quantization || !isPlain && !hasCode) return [];
  const name = basename(card.folder);
  const trust = isPlain ? "" : ", trust_remote_code=True";
  return [
    "In transformers:",
    code("python", [
      "from transformers import AutoModelForCausalLM, AutoTokenizer",
      `model = AutoModelForCausalLM.from_pretrained("${name}"${trust})`,
      `tokenizer = AutoTokenizer.from_pretrained("${name}"${trust})`,
    ]),
  ];
}

function inOnnxRuntime({ isAdapter, quantization, folder }: ModelCard): string[] {
  if (isAdapter || quantization) return [];
  return [
    "As ONNX models for ONNX Runtime:",
    code("sh", [`parscale export --model ${word(basename(folder))} --out onnx`]),
  ];
}

function code(language: string, lines: readonly string[]): string {
  return ["```" + language, ...lines, "```"].join("\n");
}
