/** A hostile chat template cannot take time, memory or output without end. */
import { assert, assertThrows } from "@std/assert";
import { DataError } from "../../core/base/errors.ts";
import { renderTemplate } from "../../core/tokenizer/template_renderer.ts";

const MUCH_WORK = /it takes more than \d+ million steps/;

const MESSAGES = [{ role: "user", content: "Hi" }];

/** Two lists that share parts, so that they are short in memory and endless as text. */
const DOUBLED = "{% set n = namespace(x=[1]) %}{% set m = namespace(x=[1]) %}" +
  "{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% set m.x = [m.x, m.x] %}{% endfor %}";

/** Templates that took the memory of the machine or never ended, and what they are refused with. */
const HOSTILE: readonly (readonly [template: string, reason: RegExp])[] = [
  ["{% for i in range(10**9) %}x{% endfor %}", /a list of 1000000000 items is too long/],
  ["{% for i in range(1000000000) %}x{% endfor %}", /a list of 1000000000 items is too long/],
  ["{{ messages|tojson(indent=1000000000) }}", /characters is too long/],
  ["{{ messages|tojson(indent=80000000) }}", /characters is too long/],
  ["{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}", MUCH_WORK],
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
    MUCH_WORK,
  ],
  [
    `{% for i in range(90000) %}${"x".repeat(100_000)}{% endfor %}`,
    /a text of \d+ characters is too long/,
  ],
  [`{{${"(".repeat(100_000)}${")".repeat(100_000)}}}`, /it nests too deep/],
  ["{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", /it nests too deep|million steps/],
  [`${DOUBLED}{{ n.x|tojson }}`, MUCH_WORK],
  [`${DOUBLED}{{ n.x }}`, MUCH_WORK],
  [`${DOUBLED}{{ n.x == m.x }}`, MUCH_WORK],
  [`${DOUBLED}{{ n.x < m.x }}`, MUCH_WORK],
  [
    `{% set n = namespace(x=7) %}{% for i in range(99999) %}{% set n.x = n.x * n.x %}{% endfor %}`,
    /4300 digits/,
  ],
  ["{{ 9 ** 999999999 }}", /4300 digits/],
  [
    "{% set a = 'a' * 4000000 %}{% for i in range(99999) %}{{ ('b' + a) in a + a }}{% endfor %}",
    MUCH_WORK,
  ],
  [
    "{% set a = 'ab' * 2000000 %}{% for i in range(99999) %}{% if a[i] %}{% endif %}{% endfor %}",
    MUCH_WORK,
  ],
  [
    "{% set a = ['ab'] * 90000 %}{% for i in range(99999) %}{% if a|sort %}{% endif %}{% endfor %}",
    MUCH_WORK,
  ],
  [
    "{% set a = 'é ' * 4000000 %}{% for i in range(99999) %}{% if a|upper %}{% endif %}{% endfor %}",
    MUCH_WORK,
  ],
  [
    "{% set a = 'é ' * 4000000 %}{% for i in range(99999) %}{% if a.split() %}{% endif %}{% endfor %}",
    /million steps|too long/,
  ],
  ["x".repeat((1 << 20) + 1), /a template of 1048577 characters is too long/],
];

Deno.test("hostile chat templates are refused in bounded time and memory", () => {
  for (const [template, reason] of HOSTILE) {
    const name = template.slice(0, 60);
    const before = Deno.memoryUsage().rss;
    const error = assertThrows(
      () => renderTemplate({ template, variables: { messages: MESSAGES } }),
      DataError,
    );
    assert(reason.test(error.message), `${name}: ${error.message}`);
    assert(Deno.memoryUsage().rss - before < 1.5e9, name);
  }
});
