/** The note that a model is being opened: at once, for a large one, and not under `-q`. */
import { assertEquals } from "@std/assert";
import { OpenDisplay } from "../../../cli/input/open_model.ts";
import { captureIo, type CaptureOptions } from "./capture_io.ts";

const NOTE = "opening a.gguf …\n";

/** Notes on loading weights of this size twice. */
function told(bytes: number, options: CaptureOptions = {}, model?: string): string {
  const { io, stderr } = captureIo(options);
  for (let load = 0; load < 2; load++) new OpenDisplay(io, undefined, model).onLoad(bytes);
  return stderr();
}

Deno.test("a large model is named once when its weights are loaded, however often that is", () => {
  assertEquals(told(5e8, {}, "a.gguf"), NOTE);
  assertEquals(told(5e7, {}, "a.gguf"), "");
});

Deno.test("no model is named under -q or without a name", () => {
  assertEquals(told(5e8, { settings: { quiet: 1 } }, "a.gguf"), "");
  assertEquals(told(5e8), "");
});
