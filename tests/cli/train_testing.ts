/**
 * Shared by the tests of `parscale train`: a scratch folder with small models and data, in which
 * command lines read as a user types them, and what a run leaves behind.
 */
import { assertEquals } from "@std/assert";
import { readHeader } from "../../core/checkpoint/safetensors.ts";
import { weightValues } from "../../core/runtime/weights.ts";
import { weightType } from "../../core/base/dtype.ts";
import { EXPECTED, jsonLines, names, parseLines } from "./models.ts";
import { parscale, type RunOptions, runParscale, type RunResult } from "./run.ts";
import { linkSync } from "../links.ts";
import { withScratch } from "../scratch.ts";
import { FIXTURES } from "../fixtures.ts";

const MODELS = `${FIXTURES}models/`;

/** Names of the models in the scratch folder. */
const LINKS = { p1: "qwen2-p1-tied-f32", p2: "qwen2-p2-tied-f32", bf16: "qwen2-p2-untied-bf16" };

/** `rows.jsonl`: 20 rows of 16 tokens, which make five batches. */
export const ROWS = "--data rows.jsonl --no-pack --seq-len 16 --batch 4";

const WORDS = "the sum of two and three is five and then one more makes six of them".split(" ");

/** Texts of different lengths, the same at every call. */
export function texts(count: number): { text: string }[] {
  return Array.from({ length: count }, (_, i) => {
    const words = Array.from({ length: 3 + i * 7 % 23 }, (_, j) => WORDS[(i * 5 + j * j) % 16]);
    return { text: words.join(" ") };
  });
}

/** A folder to train in. */
export class Workplace {
  constructor(readonly cwd: string) {}

  /** Arguments of `train` from a line without quotes. */
  args(line: string): string[] {
    return ["train", ...line.split(" "), "--threads", "1"];
  }

  /** Environment of a run: tokens are kept in the scratch folder too. */
  get env(): Record<string, string> {
    return { PARSCALE_CACHE: `${this.cwd}/cache` };
  }

  /** Runs `parscale train` to its end. */
  train(line: string, options: RunOptions = {}): Promise<RunResult> {
    const env = { ...this.env, ...options.env };
    return runParscale(this.args(line), { cwd: this.cwd, ...options, env });
  }

  /** Runs `parscale train -q`, which must succeed in silence, and returns the metrics. */
  // deno-lint-ignore no-explicit-any -- tests look at any field
  async trained(line: string, options: RunOptions = {}): Promise<any[]> {
    const result = await this.train(`${line} -q`, options);
    assertEquals([result.code, result.stderr], [0, ""], line);
    return this.metrics(/--out (\S+)/.exec(line)![1]!).filter(({ step }) => step > 0);
  }

  /** Starts `parscale train` without waiting for it. */
  start(line: string): Deno.ChildProcess {
    const pipes = { stdin: "null", stdout: "piped", stderr: "piped" } as const;
    return parscale(this.args(line), { cwd: this.cwd, env: this.env, ...pipes }).spawn();
  }

  /** Any other command. */
  command(line: string, stdin?: string): Promise<RunResult> {
    return runParscale(line, { cwd: this.cwd, ...(stdin !== undefined && { stdin }) });
  }

  /** Any other command, which must succeed. */
  async run(line: string, stdin?: string): Promise<RunResult> {
    const result = await this.command(line, stdin);
    assertEquals(result.code, 0, result.stderr);
    return result;
  }

  /** Lines of `metrics.jsonl`; a line that is being written is left out. */
  // deno-lint-ignore no-explicit-any -- tests look at any field
  metrics(run: string): any[] {
    const text = this.read(`${run}/metrics.jsonl`);
    return parseLines(text.slice(0, text.lastIndexOf("\n") + 1));
  }

  /** Metrics without what depends on the clock. */
  steady(run: string): unknown[] {
    return this.metrics(run).map(({ tokens_per_s: _, step_s: __, data_wait: ___, ...row }) => row);
  }

  /** Path of the newest checkpoint. */
  last(run: string): string {
    return `${this.cwd}/${run}/${this.read(`${run}/last`).trim()}`;
  }

  /** Tensors of the newest checkpoint in f32. */
  async weights(run: string, file = "model.safetensors"): Promise<Map<string, Float32Array>> {
    const path = `${this.last(run)}/${file}`;
    const entries = await readHeader(path);
    return new Map(entries.map(({ name, dtype, shape, offset }) => {
      const tensor = { dtype: weightType(dtype)!, shape, path, offset };
      return [name, weightValues(tensor)];
    }));
  }

  read(path: string): string {
    return Deno.readTextFileSync(`${this.cwd}/${path}`);
  }

  write(path: string, content: string | Uint8Array): void {
    const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
    Deno.writeFileSync(`${this.cwd}/${path}`, bytes);
  }

  /** Names in a folder, hidden ones too. */
  names(path: string): string[] {
    return names(`${this.cwd}/${path}`);
  }

  /** The `config.json` of a folder. */
  // deno-lint-ignore no-explicit-any -- tests look at any field
  config(folder: string): any {
    return JSON.parse(this.read(`${folder}/config.json`));
  }

  exists(path: string): boolean {
    try {
      Deno.statSync(`${this.cwd}/${path}`);
      return true;
    } catch {
      return false;
    }
  }
}

/** Puts the models, `rows.jsonl`, a batch of it and `texts.jsonl` into a folder. */
export function fillWorkplace(cwd: string): Workplace {
  const place = new Workplace(cwd);
  for (const [name, model] of Object.entries(LINKS)) {
    linkSync(`${MODELS}${model}`, `${cwd}/${name}`);
  }
  const rows = EXPECTED.train[0].batches.flat();
  place.write("rows.jsonl", jsonLines(...rows.map((tokens: number[]) => ({ tokens }))));
  place.write("batch.jsonl", place.read("rows.jsonl").split("\n").slice(0, 4).join("\n"));
  place.write("texts.jsonl", jsonLines(...texts(60)));
  return place;
}

/** Calls `body` with a new folder that is filled so. */
export function withWorkplace(body: (place: Workplace) => Promise<void>): Promise<void> {
  return withScratch((cwd) => body(fillWorkplace(cwd)));
}
