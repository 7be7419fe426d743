/**
 * Clients in Python ask `parscale serve` for structured output and tool calls.
 *
 *   PARSCALE_CLIENTS_PYTHON   a Python with openai, langchain-openai and litellm
 *
 * Skipped where it is not given. `deno task test:interop` runs this file.
 */
import { assertEquals } from "@std/assert";
import { fileURLToPath } from "node:url";
import { withTools } from "../cli/serve_tools_testing.ts";

const python = Deno.env.get("PARSCALE_CLIENTS_PYTHON");

for (const what of ["json", "tools"]) {
  Deno.test({
    name: `OpenAI's client, LangChain and litellm get ${what}`,
    ignore: !python,
    fn: () =>
      withTools(async (server) => {
        const script = fileURLToPath(new URL("clients.py", import.meta.url));
        const args = [script, `${server.url}/v1`, what];
        const { stdout, stderr } = await new Deno.Command(python!, { args }).output();
        const [said, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
        assertEquals(said, "ok\n", errors);
      }),
  });
}
