/** Documents of responses, without a model. */
import { assertEquals } from "@std/assert";
import type { Choice } from "../../../core/serve/choice.ts";
import { Documents } from "../../../core/serve/documents.ts";
import type { ServeRequest } from "../../../core/serve/request.ts";

Deno.test("usage counts a prompt once, however many choices it has, and its first reading", () => {
  const request = { kind: "completion", includeUsage: true } as ServeRequest;
  const [a, b] = [{ text: "", tokens: [1, 2, 3] }, { text: "", tokens: [1, 2] }];
  const choices = [
    { prompt: a, cachedTokens: 0, newTokens: 5 },
    { prompt: a, cachedTokens: 2, newTokens: 6 },
    { prompt: b, cachedTokens: 1, newTokens: 7 },
  ] as unknown as Choice[];
  const document = new Documents(request, "m", 1).usageChunk(choices);
  assertEquals("usage" in document && document.usage, {
    prompt_tokens: 5,
    completion_tokens: 18,
    total_tokens: 23,
    prompt_tokens_details: { cached_tokens: 1 },
  });
});
