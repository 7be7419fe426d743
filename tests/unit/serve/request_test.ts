/** Fields of requests: no field is ignored that would change an answer. */
import { assertEquals, assertNotEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { parseExactJson } from "../../../core/base/exact_json.ts";
import { ApiError } from "../../../core/serve/errors.ts";
import { Fields } from "../../../core/serve/fields.ts";
import { readRequest } from "../../../core/serve/request.ts";
import {
  HONOURED,
  NEUTRAL,
  requireKnownFields,
  WITHOUT_EFFECT,
} from "../../../core/serve/request_fields.ts";

const BODIES = {
  completion: { prompt: "Hi" },
  chat: { messages: [{ role: "user", content: "Hi" }] },
};

const TOOLS = { tools: [{ type: "function", function: { name: "f" } }] };
const SCHEMA = { type: "object", properties: { a: { type: "integer" } } };

/** A value of every field that is honoured, with which the request is another one. */
const OTHER: Readonly<Record<string, unknown>> = {
  model: "m",
  max_tokens: 3,
  max_completion_tokens: 3,
  temperature: 0.5,
  top_p: 0.5,
  top_k: 3,
  min_p: 0.1,
  n: 2,
  stop: ["x"],
  stop_token_ids: [3],
  seed: 1,
  repetition_penalty: 2,
  frequency_penalty: 1,
  presence_penalty: 1,
  logit_bias: { "3": 5 },
  response_format: { type: "json_object" },
  guided_json: SCHEMA,
  structured_outputs: { json: SCHEMA },
  logprobs: 1,
  top_logprobs: 2,
  stream: true,
  stream_options: { include_usage: true },
  ignore_eos: true,
  parscale: { streams: 2 },
  prompt: "Ho",
  echo: true,
  add_special_tokens: false,
  messages: [{ role: "user", content: "Ho" }],
  ...TOOLS,
  tool_choice: "required",
  parallel_tool_calls: false,
  add_generation_prompt: false,
  continue_final_message: true,
  chat_template_kwargs: { a: 1 },
  enable_thinking: false,
};

/** Fields without which a field is refused, or does nothing. */
const BESIDE: Readonly<Record<string, object>> = {
  stream_options: { stream: true },
  top_logprobs: { logprobs: true },
  tool_choice: TOOLS,
  parallel_tool_calls: TOOLS,
};

for (const kind of ["completion", "chat"] as const) {
  Deno.test(`every field of a ${kind} that is honoured makes another request`, () => {
    for (const name of HONOURED[kind]) {
      const value = kind === "chat" && name === "logprobs" ? true : OTHER[name];
      const body = { ...BODIES[kind], ...BESIDE[name] };
      assertNotEquals(readRequest(kind, { ...body, [name]: value }), readRequest(kind, body), name);
      // As in the API, null is the same as absent.
      if (name in BODIES[kind]) continue;
      assertEquals(readRequest(kind, { ...body, [name]: null }), readRequest(kind, body), name);
    }
  });

  Deno.test(`fields of a ${kind} are without effect, or refused by name`, () => {
    const body = BODIES[kind], plain = readRequest(kind, body);
    for (const name of WITHOUT_EFFECT) {
      assertEquals(readRequest(kind, { ...body, [name]: "x" }), plain, name);
    }
    const unknown = [
      "max_token",
      "Temperature",
      "streams",
      "functions",
      "grammar",
      "a\nb",
      "toString",
    ];
    const other = kind === "chat" ? "prompt" : "messages";
    for (const name of [...Object.keys(NEUTRAL), ...unknown, other]) {
      if (HONOURED[kind].includes(name)) continue;
      const refusal = assertThrows(
        () => readRequest(kind, { ...body, [name]: { other: 1 } }),
        ApiError,
      );
      assertEquals(refusal.options.param, name);
      assertEquals(refusal.message.includes("\n"), false);
    }
  });
}

Deno.test("values that ask for nothing are taken", () => {
  const body = {
    ...BODIES.completion,
    ...{ best_of: 1, suffix: "", use_beam_search: false, min_tokens: 0, bad_words: [] },
    ...{ skip_special_tokens: true, length_penalty: 1, modalities: ["text"], lora: [] },
  };
  assertEquals(readRequest("completion", body), readRequest("completion", BODIES.completion));
});

Deno.test("a temperature above 2 is refused, as by the API", () => {
  const body = { ...BODIES.chat, temperature: 2.1 };
  assertStringIncludes(assertThrows(() => readRequest("chat", body), ApiError).message, "2");
});

Deno.test("schemas of an answer have several names", () => {
  const formats: object[] = [
    { response_format: { type: "json_schema", json_schema: { schema: SCHEMA } } },
    { response_format: { type: "json_object", schema: SCHEMA } },
    { guided_json: SCHEMA },
    { guided_json: JSON.stringify(SCHEMA) },
    { structured_outputs: { json: SCHEMA, regex: null } },
  ];
  for (const fields of formats) {
    const { format } = readRequest("chat", { ...BODIES.chat, ...fields });
    assertEquals(parseExactJson(JSON.stringify(format!.schema)), SCHEMA);
  }
  for (const fields of [{ guided_json: "{" }, { structured_outputs: { regex: "a" } }]) {
    const refusal = assertThrows(
      () => readRequest("chat", { ...BODIES.chat, ...fields }),
      ApiError,
    );
    assertEquals(refusal.options.param, Object.keys(fields)[0]);
  }
  const two = { ...BODIES.chat, ...formats[0], ...formats[2] };
  assertStringIncludes(assertThrows(() => readRequest("chat", two), ApiError).message, "exclude");
});

Deno.test("texts become ids with fields of their own", () => {
  const tokenize = (body: object) => requireKnownFields("tokenize", new Fields(body));
  tokenize({ prompt: "Hi", add_special_tokens: false, return_token_strs: false });
  tokenize({ ...BODIES.chat, ...TOOLS, add_generation_prompt: false });
  assertThrows(() => tokenize({ prompt: "Hi", truncate: 3 }), ApiError, "truncate");
  const detokenize = () => requireKnownFields("detokenize", new Fields({ tokens: [], skip: true }));
  assertThrows(detokenize, ApiError, "skip");
});

Deno.test("docs/serving.md lists the fields as the server treats them", () => {
  const page = Deno.readTextFileSync(new URL("../../../docs/serving.md", import.meta.url));
  const rows = page.matchAll(/^\| (`.*?) *\| (.*?) *\|$/gm).map(([, fields, treatment]) => ({
    names: [...fields!.matchAll(/`(\w+)`/g)].map(([, name]) => name!),
    treatment: treatment!,
  }));
  const listed = Map.groupBy(rows, ({ treatment }) => treatment);
  const namesOf = (treatment: string) =>
    (listed.get(treatment) ?? []).flatMap(({ names }) => names).sort();
  const [completion, chat] = [new Set(HONOURED.completion), new Set(HONOURED.chat)];
  assertEquals(namesOf("honoured"), [...completion.intersection(chat)].sort());
  assertEquals(namesOf("honoured in completions"), [...completion.difference(chat)].sort());
  assertEquals(namesOf("honoured in chats"), [...chat.difference(completion)].sort());
  assertEquals(namesOf("without effect on the answer"), [...WITHOUT_EFFECT].sort());
  const refused = Object.keys(NEUTRAL).filter((name) => !completion.has(name) && !chat.has(name));
  assertEquals(namesOf("refused, unless the value asks for nothing"), refused.sort());
});
