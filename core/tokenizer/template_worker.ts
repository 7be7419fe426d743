/**
 * A worker that renders chat templates; see `template_renderer.ts`.
 *
 * The interpreter is made to look at the clock and at the size of what it computes at every step: a
 * worker that the outside terminates may continue for long inside one large operation.
 */
/// <reference no-default-lib="true" />
/// <reference lib="deno.worker" />
import { Environment, Interpreter, Template } from "@huggingface/jinja";
import { answerQuestions } from "../base/thread_worker.ts";
import type { CountedRequest, RenderAnswer, RenderResult } from "./template_renderer.ts";

/** Longest template, and longest text that a template makes: more than any model reads. */
const MAX_TEMPLATE = 1 << 20, MAX_TEXT = 16 << 20;

/** Longest list; `range` would make a longer one whole. */
const MAX_ITEMS = 100_000;

/** Time of one rendering; honest ones take a millisecond. */
const MAX_MS = 5_000;

/** Memory of this thread. */
const MAX_HEAP_BYTES = 400 << 20;

/** Steps between two looks at clock and memory, and the size of a value after which both are due. */
const STEPS = 256, LARGE = 1 << 16;

let parsed: { source: string; template: Template } | undefined;
let deadline = 0, steps = 0;
let looks: CountedRequest["looks"];

answerQuestions((request: CountedRequest): Promise<RenderAnswer> => {
  const result = render(request);
  const isWornOut = Deno.memoryUsage().heapUsed > MAX_HEAP_BYTES / 4;
  return Promise.resolve({ ...result, isWornOut });
});

function render({ template: source, variables, ...request }: CountedRequest): RenderResult {
  deadline = performance.now() + MAX_MS;
  looks = request.looks;
  try {
    if (source.length > MAX_TEMPLATE) throw tooLarge("template", source.length);
    if (parsed?.source !== source) {
      // Jinja turns the line ends of a template into line feeds; the library keeps them.
      parsed = { source, template: new Template(source.replace(/\r\n?/g, "\n")) };
    }
    return { text: parsed.template.render(variables) };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) };
  }
}

const { evaluate } = Interpreter.prototype;
Interpreter.prototype.evaluate = function (statement, environment) {
  if (++steps % STEPS === 0) look();
  const result = evaluate.call(this, statement, environment);
  const { value } = result as { value: unknown };
  if (typeof value === "string" && value.length > LARGE) {
    requireSmall("text", value.length, MAX_TEXT);
  } else if (Array.isArray(value)) requireSmall("list", value.length, MAX_ITEMS);
  return result;
};

function requireSmall(what: string, size: number, limit: number): void {
  if (size > limit) throw tooLarge(what, size);
  if (size > LARGE) look();
}

function look(): void {
  Atomics.add(looks, 0, 1);
  if (performance.now() > deadline) throw new Error(`it takes more than ${MAX_MS / 1000} s`);
  if (Deno.memoryUsage().heapUsed > MAX_HEAP_BYTES) throw new Error("it takes too much memory");
}

function tooLarge(what: string, size: number): Error {
  return new Error(`a ${what} of ${size} ${what === "list" ? "items" : "characters"} is too long`);
}

// The library offers no other way to replace one of its own functions.
const { set } = Environment.prototype;
Environment.prototype.set = function (name: string, value: unknown) {
  const isOwn = name === "range" && typeof value === "function"; // variables are no functions
  return set.call(this, name, isOwn ? limitedRange : value);
};

/** Python's range. */
function limitedRange(first: number, stop?: number, step = 1): number[] {
  const [start, end] = stop === undefined ? [0, first] : [first, stop];
  if (step === 0) throw new Error("range() arg 3 must not be zero");
  const length = Math.max(0, Math.ceil((end - start) / step));
  if (!(length <= MAX_ITEMS)) throw tooLarge("list", length);
  return Array.from({ length }, (_, i) => start + i * step);
}
