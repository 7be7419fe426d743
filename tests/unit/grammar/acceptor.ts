/** Whole texts along a grammar. */
import { Automaton, DEAD } from "../../../core/grammar/automaton.ts";
import type { Grammar } from "../../../core/grammar/expression.ts";
import { networkOf } from "../../../core/grammar/network.ts";

const LONGEST_TOKEN = 64;

/** Returns a function that tells whether a text is one of a grammar. */
export function acceptorOf(grammar: Grammar): (text: string) => boolean {
  const automaton = new Automaton(networkOf(grammar), LONGEST_TOKEN);
  return (text) => {
    let state = automaton.start;
    for (const byte of new TextEncoder().encode(text)) state = automaton.step(state, byte);
    return state !== DEAD && automaton.isAccepting(state);
  };
}
