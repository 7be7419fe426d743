/**
 * An exported model in ONNX Runtime for Python: the script of the page that `export` writes.
 *
 *   PARSCALE_ONNX_PYTHON   a Python with onnxruntime and numpy; skipped without
 */
import { assertEquals } from "@std/assert";
import { MODEL } from "../cli/models.ts";
import { runParscale } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";

const python = Deno.env.get("PARSCALE_ONNX_PYTHON");

Deno.test({
  name: "the Python of the page that is written runs as it stands, with our tokens",
  ignore: !python,
  fn: () =>
    withScratch(async (cwd) => {
      const args = ["export", "--model", MODEL, "--onnx", "--out", "onnx", "--capacity", "128"];
      assertEquals((await runParscale([...args, "--tokens", "16"], { cwd })).code, 0);
      const page = await Deno.readTextFile(`${cwd}/onnx/README.md`);
      const { stdout, stderr } = await new Deno.Command(python!, {
        args: ["-c", /```python\n([\s\S]*?)```/.exec(page)![1]!],
        cwd: `${cwd}/onnx`,
      }).output();
      const tokens = new TextDecoder().decode(stdout).trim().split("\n").map(Number);
      const asked = ["generate", "--model", MODEL, "--max-tokens", "20", "--ignore-eos", "--jsonl"];
      const own = await runParscale(asked, { stdin: '{"tokens":[1,2,3]}\n' });
      assertEquals(tokens, JSON.parse(own.stdout).tokens, new TextDecoder().decode(stderr));
    }),
});
