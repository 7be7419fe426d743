/** Schemas in requests to `parscale serve` that were once read wrongly: `fixtures/schemas/requests`. */
import { Ajv2020 } from "npm:ajv@8.20.0/dist/2020.js";
import { assert, assertEquals, assertMatch } from "@std/assert";
import { withTools } from "./serve_tools_testing.ts";

const FOLDER = new URL("../../fixtures/schemas/requests/", import.meta.url);
const read = (name: string) => Deno.readTextFileSync(new URL(`${name}.json`, FOLDER));

/** Requests with a schema, and a pattern of every finished answer. */
const ANSWERS: Readonly<Record<string, RegExp>> = {
  additional: /^\{/,
  alternation: /^\{\s*("a"\s*:\s*"(yes|no)"\s*)\}$/,
  anchor: /^-?\d+$/,
  big_integer: /^9007199254740993$/,
  bounded: /^".+"$/s,
  max_length: /^"/,
  order: /^\{\s*"b".*"2".*"1".*\}$/s,
  pointer: /^\{\s*"x"\s*:\s*-?\d+\s*\}$/,
  quote: /^"/,
  quote_pattern: /^"[^,]+"$/s,
  range: /^-?\d{1,3}$/,
};

Deno.test("answers to schemas that were read wrongly are valid, and other documents are refused", () =>
  withTools(async (server) => {
    let finished = 0;
    for (const [name, pattern] of Object.entries(ANSWERS)) {
      const body = JSON.parse(read(name));
      const validate = new Ajv2020({ strict: false, validateFormats: false })
        .compile(body.response_format.json_schema.schema);
      for (const seed of [1, 2, 3]) {
        // As text, so that the order of properties and the digits of numbers stay.
        const more = `"temperature": 2, "seed": ${seed}, "max_tokens": 200}`;
        const text = read(name).trim().replace(/"max_tokens": \d+, "temperature": 0,?/, "")
          .replace(/"max_tokens": \d+,\s+"temperature": 0,?/, "").replace(/\}$/, `, ${more}`);
        const response = await server.post("/v1/completions", text);
        const { choices: [choice] } = await response.json();
        if (choice.finish_reason !== "stop") continue;
        finished++;
        assertMatch(choice.text, pattern, name);
        assert(validate(JSON.parse(choice.text)), `${name}: ${choice.text}`);
      }
    }
    assert(finished > 15, `${finished} answers were finished`);
    const { error } = await server.complete(JSON.parse(read("external")));
    assertEquals(error.param, "response_format");
    assertMatch(error.message, /keyword "\$ref" is not supported for "https:/);
  }));

Deno.test("a pattern with alternatives in a tool leaves the end of its call", () =>
  withTools(async (server) => {
    const body = JSON.parse(read("tool_alternation"));
    for (const seed of [1, 2, 3]) {
      const { choices: [{ message }] } = await server.chat({
        ...body,
        max_tokens: 200,
        temperature: 1,
        seed,
        parallel_tool_calls: false,
      });
      assertEquals(message.tool_calls.length, 1);
      assert(["happy", "sad"].includes(JSON.parse(message.tool_calls[0].function.arguments).mood));
    }
  }));
