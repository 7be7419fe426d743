/** Rows in input order, and the exit code when some failed. */
import { assertEquals } from "@std/assert";
import { RowWriter } from "../../../cli/output/row_writer.ts";
import { captureIo, INVOCATION } from "./capture_io.ts";

/** Writes rows that finish in the order 2, 0, 1, of which the last failed or not. */
async function written(last: object): Promise<unknown[]> {
  const { io, stdout } = captureIo();
  const identity = () => ({ model: "", device: "" });
  using rows = new RowWriter(io, INVOCATION, { schema: "s/1", resume: undefined, identity });
  rows.add(2, "c", [{ id: 2 }]);
  rows.add(0, "a", [{ id: 0 }]);
  rows.add(1, "b", [{ id: 1, ...last }]);
  const code = await rows.finish();
  const ids = stdout().trim().split("\n").map((line) => JSON.parse(line).id);
  return [code, ids.filter((id) => id !== undefined)];
}

Deno.test("rows come in input order, and one that failed makes the exit code 1", async () => {
  assertEquals(await written({ text: "x" }), [0, [0, 1, 2]]);
  assertEquals(await written({ error: "x" }), [1, [0, 1, 2]]);
});
