/**
 * Renders chat templates, which come with a checkpoint and are not trusted: they reach no object of the
 * program, and their work is counted, so that they are rendered on the caller's own thread.
 */
import { DataError } from "../base/errors.ts";
import { exactEntries } from "../base/exact_json.ts";
import { keepLast } from "../base/recent.ts";
import { fromJson } from "./jinja/from_json.ts";
import { parseTemplate } from "./jinja/parser.ts";
import { render } from "./jinja/render.ts";
import type { Block } from "./jinja/syntax.ts";

/** Longest template: more than any model has. */
const MAX_TEMPLATE = 1 << 20;

/** Parsed templates that are kept; a process uses a few. */
const MAX_KEPT = 8;

/** Request to render a template. */
export interface RenderRequest {
  readonly template: string;
  /** JSON values by name. */
  readonly variables: Readonly<Record<string, unknown>>;
  /** The time that `strftime_now` writes; the present one unless given. */
  readonly now?: Date;
}

const parsed = new Map<string, Block>();

/**
 * Renders a template.
 * @throws {DataError} with what the template says, or with what is not supported
 */
export function renderTemplate({ template, variables, now = new Date() }: RenderRequest): string {
  try {
    const entries = exactEntries(variables).map(([name, value, number]) =>
      [name, fromJson(value, number)] as const
    );
    return render(parse(template), entries, now);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const isDeep = error instanceof RangeError && error.message.includes("call stack");
    throw new DataError(isDeep ? "it nests too deep" : error.message);
  }
}

function parse(template: string): Block {
  let block = parsed.get(template);
  if (block) return block;
  if (template.length > MAX_TEMPLATE) {
    throw new Error(`a template of ${template.length} characters is too long`);
  }
  block = parseTemplate(template);
  keepLast(parsed, template, block, MAX_KEPT);
  return block;
}
