/** Documents of responses, without a model. */
import { assertEquals } from "@std/assert";
import type { Choice } from "../../../core/serve/choice.ts";
import { Documents, usageOf } from "../../../core/serve/documents.ts";
import type { ServeRequest } from "../../../core/serve/request.ts";

const drafts = { drafted: 0, kept: 0 };

Deno.test("usage counts a prompt once, however many choices it has, and its first reading", () => {
  const request = { kind: "completion", includeUsage: true } as ServeRequest;
  const [a, b] = [{ text: "", tokens: [1, 2, 3] }, { text: "", tokens: [1, 2] }];
  const choices = [
    { prompt: a, cachedTokens: 0, newTokens: 5, drafts },
    { prompt: a, cachedTokens: 2, newTokens: 6, drafts },
    { prompt: b, cachedTokens: 1, newTokens: 7, drafts },
  ] as unknown as Choice[];
  const document = new Documents(request, "m", 1).usageChunk(choices);
  assertEquals("usage" in document && document.usage, {
    prompt_tokens: 5,
    completion_tokens: 18,
    total_tokens: 23,
    prompt_tokens_details: { cached_tokens: 1 },
  });
});

Deno.test("usage has drafted tokens where there were any", () => {
  const prompt = { text: "", tokens: [1] };
  const one = { prompt, cachedTokens: 0, newTokens: 5, drafts: { drafted: 4, kept: 3 } };
  const two = { ...one, drafts };
  const { completion_tokens, completion_tokens_details } = usageOf(
    [one, two] as unknown as Choice[],
  );
  assertEquals(completion_tokens, 10);
  assertEquals(completion_tokens_details, {
    accepted_prediction_tokens: 3,
    rejected_prediction_tokens: 1,
  });
});
