/**
 * Every checker takes time in proportion to the length of a response: a model that repeats one mark
 * must not hold up an evaluation.
 */
import { cpuUsage } from "node:process";
import { assert } from "@std/assert";
import {
  CHECKERS,
  checkResponse,
  type Instruction,
  loadLanguageTools,
  requireInstructions,
} from "../../core/eval/grading/ifeval/mod.ts";
import { fixtureRows } from "../fixtures.ts";

const tools = await loadLanguageTools();
const CASES = "golden/eval/cases_ifeval_checkers.jsonl";

/** One instruction of every kind, with the arguments of a golden case. */
function instructions(): Instruction[] {
  const byId = new Map<string, Instruction>();
  for (const { instruction_id: id, kwargs } of fixtureRows(CASES)) {
    byId.set(id, requireInstructions([id], [kwargs], "a case")[0]!);
  }
  return [...byId.values()];
}

/** Pieces that are repeated, and endings. */
const PIECES = String.raw`
<< < > [ ] * ** *** a A 1 . .. ? ! - -- , " ' '' ( ) { } ; : {"a": [1, é 日 a. A.
http:// can P.S. a- 1, 1. .) ). ]] <<a>> 't 😀
`.trim().split(/\s+/).concat([
  "* ",
  " ",
  "\n",
  "\n ",
  "\t",
  ". ",
  ". . ",
  "- ",
  ", ",
  "' ",
  "`",
  "\\",
  "\u0085",
]).concat(["\u2028", "a ", "a\n", "n't ", "section 1", '"a" ', "'s ", "\n\n", "\n*", "\n-"]).concat(
  ["a b. ", "``", "p. p. ", "\r\n"],
);
const ENDS = ["", "a", "\n", ">>", ". A"];

/** The endings of a piece: none and one of the others in turn, with `PARSCALE_LONG_TESTS=1` all. */
const endsOf = (index: number) =>
  Deno.env.get("PARSCALE_LONG_TESTS") === "1" ? ENDS : ["", ENDS[1 + index % 4]!];

const REPEATS = 10_000;

/** Processor time for one text: far above what a slow machine takes, far below what a square takes. */
const LIMIT_MS = 400;

Deno.test("every checker is linear: 10,000 repetitions of any mark cost little", () => {
  const all = instructions();
  assert(all.length === CHECKERS.size, `${all.length} of ${CHECKERS.size} checkers have a case`);
  const slow: string[] = [];
  for (const [index, piece] of PIECES.entries()) {
    for (const end of endsOf(index)) {
      const text = piece.repeat(REPEATS) + end;
      for (const instruction of all) {
        const before = cpuUsage();
        checkResponse(text, [instruction], tools, "A prompt");
        const { user, system } = cpuUsage(before), ms = (user + system) / 1000;
        if (ms > LIMIT_MS) slow.push(`${instruction.id} ${JSON.stringify(piece + end)}: ${ms} ms`);
      }
    }
  }
  assert(slow.length === 0, slow.join("\n"));
});
