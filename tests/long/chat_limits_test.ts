/** A hostile chat template cannot take time, memory or output without end. */
import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { DataError } from "../../core/base/errors.ts";
import { renderTemplate } from "../../core/tokenizer/template_renderer.ts";

const MESSAGES = [{ role: "user", content: "Hi" }];

/** Templates that took the memory of the machine or never ended, and what they are refused with. */
const HOSTILE: readonly (readonly [template: string, reason: RegExp])[] = [
  ["{% for i in range(10**9) %}x{% endfor %}", /too long|Unknown operator/],
  ["{% for i in range(1000000000) %}x{% endfor %}", /a list of 1000000000 items is too long/],
  ["{{ messages|tojson(indent=1000000000) }}", /Invalid string length/],
  ["{{ messages|tojson(indent=80000000) }}", /characters is too long/],
  [
    "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
    /it takes more than 5 s/,
  ],
  [
    "{% set n = namespace(s='ab') %}{% for i in range(40) %}{% set n.s = n.s + n.s %}{% endfor %}",
    /a text of \d+ characters is too long/,
  ],
  [
    "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    /a list of \d+ items is too long/,
  ],
  [
    "{% set n = namespace(s='ab', x=[]) %}" +
    "{% for i in range(21) %}{% set n.s = n.s + n.s %}{% endfor %}" +
    "{% for i in range(9000) %}{% set n.x = n.x + [n.s|upper] %}{% endfor %}",
    /it takes (too much memory|more than 5 s)/, // the latter on a busy machine
  ],
  [
    `{% for i in range(90000) %}${"x".repeat(100_000)}{% endfor %}`,
    /Invalid string length|too long/,
  ],
  ["{{" + "(".repeat(100_000), /Maximum call stack size exceeded/],
  ["x".repeat((1 << 20) + 1), /a template of 1048577 characters is too long/],
];

Deno.test("memory that the rest of the program takes is not counted for a template", async () => {
  const template =
    "{% for i in range(6000) %}{% for j in range(100) %}{% endfor %}{% endfor %}done";
  await renderTemplate({ template: "", variables: {} }); // the worker has started
  const rendered = renderTemplate({ template, variables: {} });
  rendered.catch(() => {}); // it may fail before it is waited for
  const taken: Uint8Array[] = [];
  for (let i = 0; i < 7; i++) {
    taken.push(new Uint8Array(128 << 20).fill(1));
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  // Beside much other work it may take too much time, and never too much memory.
  assertMatch(await rendered.catch((error) => error.message), /^done$|more than 5 s/);
  assertEquals(taken.length, 7);
});

Deno.test("hostile chat templates are refused in bounded time and memory", async () => {
  for (const [template, reason] of HOSTILE) {
    const name = template.slice(0, 60);
    const before = Deno.memoryUsage().rss;
    const error = await assertRejects(
      () => renderTemplate({ template, variables: { messages: MESSAGES } }),
      DataError,
    );
    assert(reason.test(error.message), `${name}: ${error.message}`);
    assert(Deno.memoryUsage().rss - before < 1.5e9, name);
  }
});

Deno.test("requests to one worker are answered in order, after hostile ones too", async () => {
  const template = "{{ messages[0].content }}{{ range(3)|join(',') }}{{ range(4, 0, -2)|join }}";
  const texts = await Promise.all(
    Array.from({ length: 50 }, (_, i) =>
      renderTemplate({
        template: i === 25 ? "{{ raise_exception('no') }}" : template,
        variables: { messages: [{ content: `${i}:` }] },
      }).catch((error) => error.message)),
  );
  assertEquals(texts, Array.from({ length: 50 }, (_, i) => i === 25 ? "no" : `${i}:0,1,242`));
});
