/** The note that a model is being opened: after a second, once, and not under `-q`. */
import { assertEquals } from "@std/assert";
import { OpenDisplay } from "../../../cli/input/open_model.ts";
import { OpeningNote } from "../../../cli/output/opening_note.ts";
import { captureIo, type CaptureOptions } from "./capture_io.ts";

const NOTE = "opening a.gguf …\n";

Deno.test("a model that takes a second to open is named once, however often it is loaded", () => {
  const { io, stderr, advance } = captureIo();
  for (let load = 0; load < 2; load++) {
    using note = new OpeningNote(io, "a.gguf");
    advance(999);
    note.check();
    assertEquals(stderr(), load === 0 ? "" : NOTE);
    advance(1);
    note.check();
    note.check();
    assertEquals(stderr(), NOTE);
  }
});

Deno.test("no model is named under -q, without a name, or once it is open", () => {
  const told = (options: CaptureOptions, model: string | undefined, isOpen = false) => {
    const { io, stderr, advance } = captureIo(options);
    using note = new OpeningNote(io, model);
    if (isOpen) note[Symbol.dispose]();
    advance(5000);
    note.check();
    return stderr();
  };
  assertEquals(told({ settings: { quiet: 1 } }, "a.gguf"), "");
  assertEquals(told({}, undefined), "");
  assertEquals(told({}, "a.gguf", true), "");
});

Deno.test("the time of a note begins when weights are loaded, above a redrawn line", () => {
  const { io, stderr, advance } = captureIo({ terminals: ["stderr"] });
  const display = new OpenDisplay(io, undefined, "a.gguf");
  display[Symbol.dispose](); // the session is there, and loads at its first step
  io.redraw("half");
  advance(5000);
  display.onLoad("weight");
  display.onLoad("begin");
  advance(500);
  display.onLoad("weight");
  assertEquals(stderr(), "half");
  advance(500);
  display.onLoad("weight");
  display.onLoad("end");
  assertEquals(stderr(), `half\r\x1b[2K${NOTE}half`);
});
