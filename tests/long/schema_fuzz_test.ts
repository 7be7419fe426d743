/** Grammars of many schemas are sound and complete, as far as random texts tell. */
import { assert } from "@std/assert";
import { RandomStream } from "../../core/base/random.ts";
import { GREEDY } from "../../core/base/sampling.ts";
import { complete, type CompletionRequest } from "../../core/session/stream.ts";
import { openModel } from "../../mod.ts";
import { Dice, randomSchema, type Schema } from "../schema_fuzzing/schemas.ts";
import {
  apiSchemas,
  requireValid,
  type Supported,
  supported,
  supportedTool,
  tryDocuments,
  tryTexts,
} from "../schema_fuzzing/try.ts";
import { FIXTURES } from "../fixtures.ts";

/** Of random weights. */
const MODEL = `${FIXTURES}models/tiny-qwen2`;

const RANDOM = Array.from({ length: 400 }, (_, seed) => randomSchema(new Dice(seed)));
const APIS = apiSchemas();
const LIBRARIES = apiSchemas("libraries");
const SCHEMAS = supportedOnes([...RANDOM, ...APIS, ...LIBRARIES]);

const TEXTS = 5, DOCUMENTS = 20;

function supportedOnes(schemas: readonly Schema[]): readonly Supported[] {
  return schemas.map(supported).filter((schema) => schema !== undefined);
}

Deno.test("schemas like those of public interfaces, and most random ones, are supported", () => {
  assert(supportedOnes(APIS).length === APIS.length);
  assert(SCHEMAS.length > 320, `${SCHEMAS.length} schemas are supported`);
});

Deno.test("random texts along the masks of a schema are valid", () => {
  const counts = SCHEMAS.map((schema, seed) => tryTexts(schema, new Dice(1000 + seed), TEXTS));
  report("texts", counts, TEXTS);
});

Deno.test("random calls along the masks of a tool are valid but for keywords that are named", () => {
  const tools = [...RANDOM, ...APIS, ...LIBRARIES].map((schema) => supportedTool(schema));
  const counts = tools.filter((tool) => tool !== undefined)
    .map((tool, seed) => tryTexts(tool, new Dice(3000 + seed), TEXTS));
  report("calls", counts, TEXTS);
});

Deno.test("valid documents are along the masks of their schema", () => {
  const counts = SCHEMAS.map((schema, seed) =>
    tryDocuments(schema, new Dice(2000 + seed), DOCUMENTS)
  );
  // Random texts hardly ever match the patterns of some schemas that libraries make.
  const tried = counts.filter((count) => count > 0);
  assert(tried.length > 0.9 * counts.length, `${tried.length} schemas have a document`);
  report("documents", tried, DOCUMENTS);
});

Deno.test("finished answers of a model with random weights at temperature 2 are valid", async () => {
  using session = await openModel(MODEL);
  const requests = async function* (): AsyncGenerator<CompletionRequest<Supported>> {
    for (const [at, schema] of SCHEMAS.entries()) {
      for (let sample = 0; sample < TEXTS; sample++) {
        yield {
          of: schema,
          tokens: session.tokenizer.encode("A value:"),
          maxTokens: 200,
          sampling: { ...GREEDY, temperature: 2 },
          constraint: await session.constraint({ schema: schema.exact }),
          random: new RandomStream(3, at * TEXTS + sample),
          eosTokenIds: session.config.eosTokenIds,
        };
      }
    }
  };
  let finished = 0;
  for await (
    const event of complete(session.engine, session.tokenizer, requests(), { batch: 16 })
  ) {
    if (event.error !== undefined) throw event.error;
    if (event.finishReason !== "eos") continue;
    requireValid(event.of, event.stream.text!);
    finished++;
  }
  console.log({ answers: TEXTS * SCHEMAS.length, finished });
  assert(finished > 2 * SCHEMAS.length, `${finished} answers finished`);
});

/** Requires that nearly all schemas were tried as often as was asked. */
function report(kind: string, counts: readonly number[], wanted: number): void {
  const total = counts.reduce((sum, count) => sum + count, 0);
  const fewer = counts.filter((count) => count < wanted).length;
  console.log({ schemas: counts.length, [kind]: total, fewer });
  assert(fewer < counts.length / 20, `${fewer} schemas have fewer than ${wanted} ${kind}`);
}
