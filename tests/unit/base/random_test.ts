/** Protects the random numbers: published answers, moments, independence of order. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { introducedValues } from "../../../core/model/init.ts";
import { philox, RandomStream } from "../../../core/base/random.ts";

Deno.test("Philox4x32-10 gives the known answers of Random123", () => {
  const block = new Uint32Array(4);
  const hex = () => [...block].map((word) => word.toString(16).padStart(8, "0")).join(" ");
  philox(0, 0, 0, 0, 0, 0, block);
  assertEquals(hex(), "6627e8d5 e169c58d bc57ac4c 9b00dbd8");
  const ones = 0xffffffff;
  philox(ones, ones, ones, ones, ones, ones, block);
  assertEquals(hex(), "408f276d 41c83b0e a20bc7c6 6d5451fd");
  philox(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, block);
  assertEquals(hex(), "d16cfe09 94fdcceb 5001e420 24126ea1");
});

Deno.test("normal draws have the moments of a normal distribution", () => {
  const filled = new Float32Array(200_000);
  new RandomStream(1, "moments").fillNormal(filled, 1);
  const stream = new RandomStream(2);
  for (const values of [filled, Float32Array.from({ length: 200_000 }, () => stream.normal())]) {
    const moment = (power: number) => values.reduce((sum, x) => sum + x ** power, 0) / 200_000;
    assert(Math.abs(moment(1)) < 0.01 && Math.abs(moment(3)) < 0.04);
    assert(Math.abs(moment(2) - 1) < 0.02 && Math.abs(moment(4) - 3) < 0.1);
  }
});

Deno.test("uniform draws stay strictly inside, integers below their bound", () => {
  const stream = new RandomStream(Number.MAX_SAFE_INTEGER, 3);
  const counts = [0, 0, 0];
  for (let i = 0; i < 30_000; i++) {
    const value = stream.uniform();
    assert(value > 0 && value < 1);
    counts[stream.integer(3)]!++;
  }
  for (const bound of [0, -1, 1.5, NaN]) assertThrows(() => stream.integer(bound), RangeError);
  assert(counts.every((count) => Math.abs(count - 10_000) < 400), String(counts));
});

Deno.test("streams differ by seed and name, and continue from a position", () => {
  const first = (seed: number, stream: string | number) => new RandomStream(seed, stream).word();
  assertEquals(new Set([first(0, 0), first(1, 0), first(0, 1), first(0, "0")]).size, 4);
  const stream = new RandomStream(7, "resume");
  for (let i = 0; i < 5; i++) stream.word();
  const resumed = new RandomStream(7, "resume");
  resumed.position = stream.position;
  assertEquals(resumed.word(), stream.word());
});

Deno.test("introduced tensors do not depend on the pieces they are made in", () => {
  const spec = { name: "model.aggregate_layer.0.weight", shape: [11, 7], introduced: true };
  const whole = introducedValues(spec, 5);
  for (const cut of [1, 2, 3, 30]) {
    const pieces = [...introducedValues(spec, 5, 0, cut), ...introducedValues(spec, 5, cut)];
    assertEquals(pieces, [...whole]);
  }
  const bias = { name: "model.aggregate_layer.0.bias", shape: [7], introduced: true };
  assertEquals([...introducedValues(bias, 5)], Array(7).fill(0));
});
