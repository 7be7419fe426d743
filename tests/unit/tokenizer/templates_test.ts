/** Protects the rendering of chat templates: every text is that of transformers 5.24 with Jinja2 3.1.6. */
import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { DataError } from "../../../core/base/errors.ts";
import { parseExactJson } from "../../../core/base/exact_json.ts";
import { encodeDocument } from "../../../core/data/encode.ts";
import type { Document } from "../../../core/data/document.ts";
import {
  type ChatMessage,
  openTokenizer,
  renderChat,
  type Tokenizer,
} from "../../../core/tokenizer/tokenizer.ts";
import { inZone } from "../../../core/tokenizer/jinja/posix_zone.ts";
import { strftime } from "../../../core/tokenizer/jinja/strftime.ts";
import { renderTemplate } from "../../../core/tokenizer/template_renderer.ts";
import { environment } from "../../replaced.ts";
import { FIXTURE } from "./testing.ts";

const GOLDEN = new URL("../../../fixtures/golden/templates/", import.meta.url);

/** A template with what it is given; `right` is its text, null where the reference refuses. */
interface Kind {
  readonly name: string;
  readonly template: string;
  readonly messages: readonly ChatMessage[];
  readonly tools?: readonly unknown[];
  readonly variables?: Readonly<Record<string, unknown>>;
  readonly right: string | null;
}

/** A conversation, its prompt, and its row of training data: parts that are not, are, and are not trained. */
interface Conversation extends Pick<Kind, "messages"> {
  readonly template: string;
  readonly tools: readonly unknown[] | null;
  readonly variables: Readonly<Record<string, unknown>>;
  readonly add_generation_prompt: boolean;
  readonly text: string | null;
  readonly targets: readonly (readonly [string, string, string])[] | null;
}

const NAMED_TOKENS = { bos_token: "<|endoftext|>", eos_token: "<|endoftext|>" };

async function conversations() {
  const file = await Deno.open(new URL("conversations.json.gz", GOLDEN));
  const bytes = file.readable.pipeThrough(new DecompressionStream("gzip"));
  return parseExactJson(await new Response(bytes).text()) as {
    readonly templates: Readonly<Record<string, string>>;
    readonly cases: readonly Conversation[];
  };
}

function rendered(template: string, variables: Record<string, unknown> = {}): string {
  return renderTemplate({ template, variables });
}

/** The text, or null where it is refused. */
async function textOrNull(text: () => string | Promise<string>): Promise<string | null> {
  try {
    return await text();
  } catch (error) {
    if (error instanceof DataError) return null;
    throw error;
  }
}

/** Templates with what no known template uses, such as `%` on text and the filter `groupby`. */
const REFUSED = [
  "fmt",
  "case filters",
  "is tests",
  "filters misc",
  "batch",
  "groupby",
  "string methods",
].concat("string mult format", "round", "power");

Deno.test("templates of all kinds give the text of transformers, or are refused by name", async () => {
  const kinds = parseExactJson(await Deno.readTextFile(new URL("kinds.json", GOLDEN))) as Kind[];
  for (const { name, template, messages, tools = null, variables, right } of kinds) {
    const all = {
      ...{ bos_token: "<bos>", eos_token: "<eos>", messages, tools, add_generation_prompt: true },
      ...variables,
    };
    if (REFUSED.includes(name)) {
      assertThrows(() => rendered(template, all), DataError, "is not supported");
    } else assertEquals(await textOrNull(() => rendered(template, all)), right, name);
  }
  assertEquals(kinds.length, 118);
});

Deno.test("a generator that is spread into a call gives all its items", () => {
  const template =
    "{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(*['x', 'y'] | map('upper')) }}";
  assertEquals(rendered(template), "XY");
});

Deno.test("random conversations give the prompts of transformers", async () => {
  const { templates, cases } = await conversations();
  for (const one of cases) {
    const tokenizer = {
      directory: one.template,
      chatTemplate: templates[one.template]!,
      namedTokens: NAMED_TOKENS,
    };
    const text = await textOrNull(() =>
      renderChat(tokenizer, one.messages, {
        ...(one.tools && { tools: one.tools }),
        variables: one.variables,
        addGenerationPrompt: one.add_generation_prompt,
      })
    );
    assertEquals(text, one.text, one.template);
  }
  assertEquals(cases.length, 200);
  // The conversations of Qwen2.5 are those of Qwen2.5-Coder too.
  const coder = new URL("../eval/qwen2.5-coder_chat_template.jinja", GOLDEN);
  assertEquals(await Deno.readTextFile(coder), templates["qwen2.5"]);
});

Deno.test("random conversations give the training targets of the reference", async () => {
  const { templates, cases } = await conversations();
  const base = await openTokenizer(FIXTURE);
  let compared = 0;
  for (const one of cases) {
    if (!one.messages.some(({ role }) => role === "assistant")) continue;
    const tokenizer = Object.create(base, {
      chatTemplate: { value: templates[one.template]! },
      templateVariables: { value: one.variables },
      namedTokens: { value: NAMED_TOKENS },
    }) as Tokenizer;
    bindMethods(tokenizer, base);
    const { messages, tools } = one;
    const document: Document = { row: 1, kind: "messages", messages, ...(tools && { tools }) };
    const parts = await trainedParts(tokenizer, document);
    // The tokenizer normalises its texts.
    const right = one.targets && joinedParts(one.targets).map((part) => part.normalize("NFC"));
    assertEquals(parts, right, one.template);
    if (parts) compared++;
  }
  assertEquals(compared > 100, true, `${compared} rows`);
});

/** Private fields are of the tokenizer itself, not of an object that inherits from it. */
function bindMethods(copy: Tokenizer, { encode, decode }: Tokenizer): void {
  const base = Object.getPrototypeOf(copy);
  Object.assign(copy, { encode: encode.bind(base), decode: decode.bind(base) });
}

/** Texts that are not trained and trained by turns; null for a row that is refused. */
async function trainedParts(tokenizer: Tokenizer, document: Document): Promise<string[] | null> {
  try {
    const ids = await encodeDocument(tokenizer, document);
    const runs: number[][] = [[]];
    for (const id of ids) {
      if ((runs.length % 2 === 1) !== (id < 0)) runs.push([]);
      runs.at(-1)!.push(id < 0 ? ~id : id);
    }
    return runs.map((run) => tokenizer.decode(run));
  } catch (error) {
    if (error instanceof DataError) return null;
    throw error;
  }
}

/** Parts with neighbours of one kind put together. */
function joinedParts(targets: NonNullable<Conversation["targets"]>): string[] {
  const parts = [""];
  for (const [question, learned, rest] of targets) {
    parts[parts.length - 1] += question;
    parts.push(learned, rest);
  }
  if (parts.at(-1) === "") parts.pop();
  return parts;
}

Deno.test("strip takes away its argument alone", () => {
  const say = (text: string, call: string) => rendered(`[{{ x.${call} }}]`, { x: text });
  assertEquals(say("\n\n    indented = 1", "lstrip('\\n')"), "[    indented = 1]");
  assertEquals(say("\n  a  \n", "strip('\\n')"), "[  a  ]");
  assertEquals(say("\ufeffa\x1c", "strip()"), "[\ufeffa]");
});

Deno.test("numbers keep their digits and keys their order in what tojson writes", () => {
  const text = '{"z": {"minimum": 0.0, "maximum": 1e-07}, "1": 9223372036854775807, "0": 1e+22}';
  assertEquals(rendered("{{ x|tojson }}", { x: parseExactJson(text) }), text);
  assertEquals(
    rendered("{{ 9007199254740993 + 0 }} {{ 1e3 }} {{ 1_000 }}"),
    "9007199254740993 1000.0 1000",
  );
});

Deno.test("dates have English names, whatever the locale of the machine", () => {
  const now = new Date(2026, 10, 7, 9, 5, 3);
  const template = "{{ strftime_now('%d %b %Y|%A %-d. %B|%H:%M:%S|%I %p|%y|%%') }}";
  assertEquals(
    renderTemplate({ template, variables: {}, now }),
    "07 Nov 2026|Saturday 7. November|09:05:03|09 AM|26|%",
  );
  assertThrows(() => rendered("{{ strftime_now('%U') }}"), DataError, "'%U' of strftime_now");
});

Deno.test("local time follows TZ, also as POSIX writes it", () => {
  // By Python 3.11 on glibc, in November and in July 2026.
  const rows: [zone: string, winter: string, summer: string][] = [
    ["CET-1CEST", "28 08:00", "28 09:00"],
    [":CET-1CEST,M3.5.0,M10.5.0/3", "28 08:00", "28 09:00"],
    ["<+0530>-5:30", "28 12:30", "28 12:30"],
    ["GMT+5", "28 02:00", "28 02:00"],
    ["XYZ-24", "29 07:00", "29 07:00"],
    ["AEST-10AEDT,M10.1.0,M4.1.0/3", "28 18:00", "28 17:00"],
    ["<-03>3<-02>,M3.5.0/-2,M10.5.0/-1", "28 04:00", "28 05:00"],
    ["IST-1GMT0,M10.5.0,M3.5.0/1", "28 07:00", "28 08:00"],
    ["AAA3BBB,J60,J300", "28 04:00", "28 05:00"],
    ["AAA3BBB,59,299/0", "28 04:00", "28 05:00"],
  ];
  const times = ["2026-11-28T07:00:00Z", "2026-07-28T07:00:00Z"];
  for (const [zone, ...expected] of rows) {
    const shown = times.map((time) => strftime(inZone(new Date(time), zone), "%d %H:%M"));
    assertEquals(shown, expected, zone);
  }
  // European summer time ends at 01:00 UTC.
  const hours = ["2026-10-25T00:59:59Z", "2026-10-25T01:00:00Z"].map((time) =>
    strftime(inZone(new Date(time), "CET-1CEST,M3.5.0,M10.5.0/3"), "%H:%M:%S")
  );
  assertEquals(hours, ["02:59:59", "02:00:00"]);
  const now = new Date();
  for (const zone of ["", "UTC", "Europe/Paris", "nonsense,"]) assertEquals(inZone(now, zone), now);
  using _ = environment({ TZ: "<+0530>-5:30" });
  const template = "{{ strftime_now('%H:%M') }}";
  const text = renderTemplate({ template, variables: {}, now: new Date(times[0]!) });
  assertEquals(text, "12:30");
});

Deno.test("a role developer is system where the template does not know it", async () => {
  const say = (chatTemplate: string) =>
    renderChat({ directory: "m", chatTemplate, namedTokens: {} }, [
      { role: "developer", content: "Be brief" },
    ]);
  assertEquals(await say("{{ messages[0].role }}"), "system");
  assertEquals(await say("{{ messages[0].role }}{# developer #}"), "developer");
});

Deno.test("a conversation that continues its last message ends inside it", async () => {
  const template = "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}<end>{% endfor %}" +
    "{% if add_generation_prompt %}<assistant>{% endif %}";
  const tokenizer = { directory: "m", chatTemplate: template, namedTokens: {} };
  const say = (content: ChatMessage["content"]) =>
    renderChat(tokenizer, [{ role: "user", content: "Hi" }, { role: "assistant", content }], {
      continueFinalMessage: true,
    });
  assertEquals(await say("Hello "), "<user>Hi<end><assistant>Hello");
  assertEquals(await textOrNull(() => say(null)), null);
  const keeps = { ...tokenizer, chatTemplate: template.replace("|trim", "") };
  const [message] = [{ role: "user", content: " a " }];
  assertEquals(await renderChat(keeps, [message], { continueFinalMessage: true }), "<user> a ");
  assertEquals(
    await textOrNull(() =>
      renderChat(keeps, [message], { continueFinalMessage: true, addGenerationPrompt: true })
    ),
    null,
  );
});

Deno.test("thoughts are read under any of their names", async () => {
  const template = "{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}";
  const tokenizer = { directory: "m", chatTemplate: template, namedTokens: {} };
  for (const name of ["reasoning_content", "thinking", "reasoning"]) {
    const message = { role: "assistant", content: "", [name]: "Hm" };
    assertEquals(await renderChat(tokenizer, [message]), "Hm|Hm", name);
  }
});

Deno.test("variables that the template does not read are refused, unless they ask for nothing", async () => {
  const tokenizer = {
    ...{ directory: "m", chatTemplate: "{{ mood }}{{ messages[0].role }}", namedTokens: {} },
    templateVariables: { mood: 1 },
  };
  const say = (variables: Record<string, unknown>) =>
    renderChat(tokenizer, [{ role: "user" }], { variables });
  assertEquals(await say({}), "1user");
  assertEquals(await say({ mood: "x", enable_thinking: false }), "xuser");
  assertEquals(await textOrNull(() => say({ enable_thinking: true })), null);
  assertEquals(await textOrNull(() => say({ messages: [] })), null);
});

Deno.test("what is not supported is refused by name", () => {
  const told = (template: string) => assertThrows(() => rendered(template), DataError).message;
  assertStringIncludes(told("{{ 'a'|xmlattr }}"), "the filter 'xmlattr' is not supported");
  assertStringIncludes(told("{% include 'a' %}"), "the tag 'include' is not supported");
  assertStringIncludes(told("{{ [1].append(2) }}"), "access to attribute 'append' of 'list'");
  assertStringIncludes(told("{{ 'a'.encode() }}"), "'encode' of str is not supported");
  assertStringIncludes(told("{{ 'a'.find('a', 1) }}"), "by start and end is not supported");
  assertStringIncludes(told("{{ range(4)[1:] }}"), "a slice of a range is not supported");
  assertStringIncludes(told("{{ [1].index(1) }}"), "'index' of list is not supported");
  assertStringIncludes(told("{{ ('a'|safe).strip() }}"), "'strip' of safe text is not supported");
  assertStringIncludes(told("{{ 'a'|attr('strip') }}"), "the filter 'attr' is not supported");
  assertStringIncludes(told("{{ [1]|map('string') }}"), "a generator");
});
