/** Path of the engine on each platform, and the error where there is none. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { EnvironmentError } from "../../../core/base/errors.ts";
import { LIBRARY, onnxRuntimePath } from "../../../core/runtime/onnxruntime/capi/library.ts";

Deno.test("the npm package has a library for every platform in the table", () => {
  for (const platform of Object.keys(LIBRARY)) {
    assert(Deno.statSync(onnxRuntimePath(platform)).size > 1e6, platform);
  }
});

Deno.test("Macs with Intel processors have no engine, and the error says what to do", () => {
  const error = assertThrows(() => onnxRuntimePath("darwin-x86_64"), EnvironmentError);
  assertEquals(
    error.message,
    "ONNX Runtime has no library for Macs with Intel processors: only for linux-x86_64, " +
      "linux-aarch64, darwin-aarch64, windows-x86_64, windows-aarch64",
  );
  assertEquals(error.hints, ["pass `--device reference`, which is slow, or use another machine"]);
  const other = assertThrows(() => onnxRuntimePath("freebsd-x86_64"), EnvironmentError);
  assert(other.message.startsWith("ONNX Runtime has no library for freebsd-x86_64"));
});
