/** Redirects and the token, by a stand-in for `fetch`. */
import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import type { ParscaleError } from "../../../core/base/errors.ts";
import { HubClient, NetworkError } from "../../../core/hub/client.ts";
import { explain } from "../../../core/hub/errors.ts";
import { replaced } from "../../replaced.ts";

const HUB = "https://hub.test";

/** Follows redirects from a file of the hub; returns what was asked of whom, or rejects. */
async function follow(redirects: Readonly<Record<string, string>>): Promise<string[]> {
  const asked: string[] = [];
  using _ = replaced(globalThis as Pick<typeof globalThis, "fetch">, {
    fetch(input, init) {
      const { href } = new URL(String(input));
      asked.push(`${href} ${new Headers(init?.headers).get("authorization")}`);
      const location = redirects[href];
      const headers = location === undefined ? undefined : { location };
      return Promise.resolve(new Response(null, { status: headers ? 302 : 200, headers }));
    },
  });
  const access = { endpoint: HUB, token: "hf_a", cache: "" };
  const client = new HubClient(access, undefined, { delaysMs: [] });
  const { chunks } = await client.get(`${HUB}/file`);
  await Array.fromAsync(chunks());
  return asked;
}

Deno.test("a redirect from https to http is refused", async () => {
  for (const next of ["http://hub.test/file", "http://storage.test/file", "ftp://hub.test/file"]) {
    await assertRejects(() => follow({ [`${HUB}/file`]: next }), NetworkError, "cannot be used");
  }
});

Deno.test("an unknown issuer has a hint that names DENO_CERT", () => {
  const client = new HubClient({ endpoint: HUB, token: undefined, cache: "" });
  const asked = { repository: { kind: "model", name: "a/b" }, revision: "main" } as const;
  // As of Deno 2.9.6.
  const hintsOf = (message: string) => {
    const cause = new TypeError("fetch failed", { cause: new TypeError(message) });
    return (explain(new NetworkError("hub.test", { cause }), client, asked) as ParscaleError).hints;
  };
  const [hint] = hintsOf("client error (Connect): invalid peer certificate: UnknownIssuer");
  assertStringIncludes(hint!, "set DENO_CERT to its certificate file");
  assertEquals(hintsOf("hub.test: dns error"), ["check the network and HF_ENDPOINT"]);
});

Deno.test("the token goes to the hub alone, and redirects end", async () => {
  const chain = { [`${HUB}/file`]: "/moved", [`${HUB}/moved`]: "https://storage.test/blob" };
  assertEquals(await follow(chain), [
    `${HUB}/file Bearer hf_a`,
    `${HUB}/moved Bearer hf_a`,
    "https://storage.test/blob null",
  ]);
  await assertRejects(() => follow({ [`${HUB}/file`]: "/file" }), NetworkError, "more than");
});
