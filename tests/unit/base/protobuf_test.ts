/** Protects the wire format: fields of every kind, nested, one message after another. */
import { assertEquals } from "@std/assert";
import { Message } from "../../../core/base/protobuf.ts";

const hex = (message: Message) => message.finish().toHex();

Deno.test("fields have the bytes that the format prescribes", () => {
  assertEquals(hex(new Message().integer(1, 150)), "089601");
  assertEquals(hex(new Message().integer(1, -2)), "08feffffffffffffffff01");
  assertEquals(hex(new Message().bytes(2, "testing")), "120774657374696e67");
  assertEquals(hex(new Message().bytes(2, "aé")), "120361c3a9");
  assertEquals(hex(new Message().bytes(2, "x".repeat(128))), `128001${"78".repeat(128)}`);
  assertEquals(hex(new Message().float(3, 1).double(4, 1)), "1d0000803f21000000000000f03f");
  assertEquals(hex(new Message().bytes(3, new Message().integer(1, 150))), "1a03089601");
});

Deno.test("a message keeps its bytes while others take the memory of what it contains", () => {
  const outer = new Message().bytes(1, new Message().bytes(1, "first"));
  const other = new Message().bytes(1, "other").bytes(1, new Message().bytes(1, "last"));
  assertEquals(hex(outer), "0a070a056669727374");
  assertEquals(hex(other), "0a056f746865720a060a046c617374");
});
