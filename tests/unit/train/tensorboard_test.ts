/** Protects event files: checksums, framing, exact bytes, and what a killed run leaves. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { EnvironmentError } from "../../../core/base/errors.ts";
import { crc32c, EventWriter } from "../../../core/train/tensorboard.ts";
import { withScratch } from "../../scratch.ts";

const utf8 = new TextEncoder();

/** Records of a file; checksums are recomputed from the format's definition. */
function records(bytes: Uint8Array): Uint8Array[] {
  const found: Uint8Array[] = [], view = new DataView(bytes.buffer, bytes.byteOffset);
  const unmask = (value: number) => {
    const rotated = (value - 0xa282ead8) >>> 0;
    return (rotated >>> 17 | rotated << 15) >>> 0;
  };
  for (let at = 0; at < bytes.length;) {
    const length = Number(view.getBigUint64(at, true));
    assertEquals(unmask(view.getUint32(at + 8, true)), crc32c(bytes.subarray(at, at + 8)));
    const data = bytes.subarray(at + 12, at + 12 + length);
    assertEquals(unmask(view.getUint32(at + 12 + length, true)), crc32c(data));
    found.push(data);
    at += length + 16;
  }
  return found;
}

Deno.test("CRC-32C gives the known answers of RFC 3720", () => {
  assertEquals(crc32c(utf8.encode("123456789")), 0xe3069283);
  assertEquals(crc32c(new Uint8Array(0)), 0);
  assertEquals(crc32c(new Uint8Array(32)), 0x8a9136aa);
  assertEquals(crc32c(new Uint8Array(32).fill(0xff)), 0x62a8ab43);
  assertEquals(crc32c(Uint8Array.from({ length: 32 }, (_, i) => i)), 0x46dd794e);
});

Deno.test("records are the bytes of Event messages", () =>
  withScratch((folder) => {
    using writer = new EventWriter(`${folder}/a/b`, { now: () => 1_700_000_000_500 });
    assertEquals(writer.path, `${folder}/a/b/events.out.tfevents.1700000000.parscale`);
    writer.scalar("loss", 300, 0.5);
    const [version, loss, ...rest] = records(Deno.readFileSync(writer.path));
    // wall_time = 1700000000.5, then file_version
    const time = [0x09, 0x00, 0x00, 0x20, 0x40, 0xfc, 0x54, 0xd9, 0x41];
    assertEquals([...version!], [...time, 0x1a, 13, ...utf8.encode("brain.Event:2")]);
    // step = 300, summary { value { tag: "loss", simple_value: 0.5 } }
    const value = [0x0a, 4, ...utf8.encode("loss"), 0x15, 0, 0, 0, 0x3f];
    const summary = [0x2a, value.length + 2, 0x0a, value.length, ...value];
    assertEquals([...loss!], [...time, 0x10, 0xac, 0x02, ...summary]);
    assertEquals(rest, []);
    return Promise.resolve();
  }));

Deno.test("every value is in the file before the writer is closed", () =>
  withScratch((folder) => {
    using writer = new EventWriter(folder);
    for (let step = 1; step <= 50; step++) {
      writer.scalar("train/loss", step, 1 / step);
      assertEquals(records(Deno.readFileSync(writer.path)).length, step + 1);
    }
    writer.scalar("long ".repeat(100), 2 ** 40, NaN);
    assertEquals(records(Deno.readFileSync(writer.path)).length, 52);
    return Promise.resolve();
  }));

Deno.test("two writers of one second take two files; bad folders and steps are refused", () =>
  withScratch((folder) => {
    const now = () => 1000;
    using first = new EventWriter(folder, { now });
    using second = new EventWriter(folder, { now });
    assert(first.path.endsWith("tfevents.1.parscale"));
    assert(second.path.endsWith("tfevents.2.parscale"));
    for (const step of [-1, 1.5, NaN]) {
      assertThrows(() => first.scalar("loss", step, 1), RangeError);
    }
    assertEquals(records(Deno.readFileSync(first.path)).length, 1);
    assertThrows(
      () => new EventWriter(first.path),
      EnvironmentError,
      "cannot write training events in ",
    );
    return Promise.resolve();
  }));
