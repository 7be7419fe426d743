/** Drafts by prompt lookup, and how long they are. */
import { assertEquals } from "@std/assert";
import { Drafter, StepTimes } from "../../../core/generate/speculation.ts";

/** A drafter of a text whose last `pushed` tokens are an answer. */
function drafterOf(text: readonly number[], pushed = 0): Drafter {
  const drafter = new Drafter(text.slice(0, text.length - pushed));
  for (const token of text.slice(text.length - pushed)) drafter.push(token);
  return drafter;
}

Deno.test("a draft is what followed the last three tokens, wherever prompt and answer meet", () => {
  const text = [1, 2, 3, 4, 5, 9, 1, 2, 3];
  for (const pushed of [0, 1, 2, 5]) {
    assertEquals(drafterOf(text, pushed).draft(3), [4, 5, 9]);
  }
});

Deno.test("three tokens count more than two that are nearer, and the last place more than the first", () => {
  assertEquals(drafterOf([1, 2, 3, 4, 7, 2, 3, 5, 1, 2, 3]).draft(1), [4]);
  assertEquals(drafterOf([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3]).draft(1), [5]);
  assertEquals(drafterOf([7, 2, 3, 4, 8, 2, 3, 5, 1, 2, 3]).draft(1), [5]);
});

Deno.test("a draft that reaches the end of the text repeats", () => {
  assertEquals(drafterOf([1, 2, 1, 2, 1, 2]).draft(5), [1, 2, 1, 2, 1]);
  assertEquals(drafterOf([8, 8, 8]).draft(3), [8, 8, 8]);
});

Deno.test("nothing is drafted after tokens that are new, nor for fewer than one", () => {
  for (const text of [[1], [1, 2], [3, 3], [1, 2, 3, 1, 3]]) {
    assertEquals(drafterOf(text).draft(4), []);
  }
  assertEquals(drafterOf([1, 2, 1, 2, 1, 2]).draft(0), []);
  assertEquals(drafterOf([1, 2, 1, 2, 1, 2]).draft(-1), []);
});

/** Times of steps, as if each had been measured twice. */
function timesOf(ms: Readonly<Record<number, number>>, batch = 1): StepTimes {
  const times = new StepTimes();
  for (const [tokens, time] of Object.entries(ms)) {
    for (let i = 0; i < 2; i++) times.observe(batch, Number(tokens), time);
  }
  return times;
}

const ROOM = { most: 8, streams: 1 };

Deno.test("drafts are as long as pays", () => {
  const drafter = drafterOf([1, 2, 3, 4, 1, 2, 3]);
  drafter.draft(7);
  const best = (ms: Record<number, number>, length = 7) =>
    timesOf(ms).best([drafter], [length], ROOM);
  assertEquals(best({ 1: 10, 2: 11, 4: 12, 8: 14 }), 8);
  assertEquals(best({ 1: 10, 2: 11, 4: 13, 8: 30 }), 4);
  assertEquals(best({ 1: 10, 2: 30, 4: 60, 8: 90 }), 1);
  assertEquals(best({ 1: 10, 2: 11, 3: 12, 4: 60 }, 2), 3, "no longer than the draft");
  assertEquals(best({ 2: 11, 4: 12 }), 1, "the time of a single step comes first");
});

Deno.test("rows of a step are limited over all its sequences", () => {
  const drafters = [drafterOf([1, 2, 3, 4, 1, 2, 3]), undefined];
  drafters[0]!.draft(7);
  const times = timesOf({ 1: 10, 2: 10, 4: 10, 8: 10 }, 2);
  assertEquals(times.best(drafters, [7, 0], ROOM), 4);
  assertEquals(times.best(drafters, [7, 0], { ...ROOM, most: 3 }), 1);
});

Deno.test("drafts that are refused end, and begin again once they would have been kept", () => {
  const drafter = new Drafter([1, 2, 3, 4, 5]);
  const times = timesOf({ 1: 10, 2: 13, 4: 20, 8: 40 });
  const sizes: number[] = [];
  const add = (next: (i: number) => readonly number[], count: number) => {
    for (let i = 0; i < count; i++) {
      for (const token of next(i)) {
        const { length } = drafter.draft(7);
        sizes.push(length === 0 ? 0 : times.best([drafter], [length], ROOM));
        drafter.push(token);
      }
    }
  };
  add((i) => [1, 2, 100 + i], 40);
  assertEquals(new Set(sizes.slice(-20)), new Set([0, 1]));
  add(() => [1, 2, 3, 4, 5], 40);
  assertEquals(sizes.at(-1)! > 1, true);
});
