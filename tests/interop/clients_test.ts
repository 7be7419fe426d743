/**
 * Clients in Python ask `parscale serve` for answers, structured output and tool calls.
 *
 *   PARSCALE_CLIENTS_PYTHON   a Python with openai, langchain-openai, litellm and llm
 *
 * Skipped where it is not given. `deno task test:interop` runs this file.
 */
import { assertEquals } from "@std/assert";
import { fileURLToPath } from "node:url";
import { withScratch } from "../scratch.ts";
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

Deno.test({
  name: "llm gets an answer, the same in a stream, and JSON by a schema",
  ignore: !python,
  fn: () =>
    withTools((server) =>
      withScratch(async (folder) => {
        const { data: [{ id }] } = await (await server.get("/v1/models")).json();
        const model = [
          "- model_id: served",
          `  model_name: ${id}`,
          `  api_base: ${server.url}/v1`,
          "  supports_schema: true",
        ];
        await Deno.writeTextFile(`${folder}/extra-openai-models.yaml`, model.join("\n"));
        // Plugins of the installation may need other packages.
        const env = { LLM_USER_PATH: folder, LLM_LOAD_PLUGINS: "" };
        const ask = async (...more: string[]) => {
          const options = ["-m", "served", "--no-log", "-o", "seed", "1", "-o", "temperature", "0"];
          const args = ["-m", "llm", "Is it sunny?", ...options, ...more];
          const { stdout, stderr } = await new Deno.Command(python!, { args, env }).output();
          const [said, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
          assertEquals(errors, "");
          return said!.replace(/\n$/, "");
        };
        const messages = [{ role: "user", content: "Is it sunny?" }];
        const { choices: [choice] } = await server.chat({
          messages,
          temperature: 0,
          max_tokens: 12,
        });
        const few = ["-o", "max_tokens", "12"];
        assertEquals(await ask("--no-stream", ...few), choice.message.content);
        assertEquals(await ask(...few), choice.message.content);
        const schema = ["--schema", "sunny bool", "-o", "max_tokens", "60"];
        assertEquals(typeof JSON.parse(await ask(...schema)).sunny, "boolean");
      })
    ),
});
