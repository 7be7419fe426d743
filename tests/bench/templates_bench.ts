/**
 * Rendering of chat templates: random conversations through the templates of Qwen2.5, Qwen3, Llama 3.2
 * and SmolLM2, from messages to text. With PARSCALE_HF_PYTHON, a Python with transformers, its time on the
 * same conversations stands beside ours.
 */
import { parseExactJson } from "../../core/base/exact_json.ts";
import { type ChatMessage, renderChat } from "../../core/tokenizer/chat.ts";

interface Conversation {
  readonly template: string;
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly unknown[] | null;
  readonly variables: Readonly<Record<string, unknown>>;
  readonly add_generation_prompt: boolean;
}

const FILE = new URL("../../fixtures/golden/templates/conversations.json.gz", import.meta.url);

const stream = (await Deno.open(FILE)).readable.pipeThrough(new DecompressionStream("gzip"));
const { templates, cases } = parseExactJson(await new Response(stream).text()) as {
  readonly templates: Readonly<Record<string, string>>;
  readonly cases: readonly Conversation[];
};

/** Renders all conversations of a template. */
async function renderAll(name: string): Promise<void> {
  const tokenizer = {
    directory: name,
    chatTemplate: templates[name]!,
    namedTokens: { bos_token: "<|endoftext|>", eos_token: "<|endoftext|>" },
  };
  for (const { template, messages, tools, variables, add_generation_prompt } of cases) {
    if (template !== name) continue;
    await renderChat(tokenizer, messages, {
      ...(tools && { tools }),
      variables,
      addGenerationPrompt: add_generation_prompt,
    }).catch(() => {}); // a few are refused by the template
  }
}

for (const name of Object.keys(templates)) {
  Deno.bench({
    name: `50 conversations, ${name}`,
    group: "render",
    n: 20,
    warmup: 5,
    fn: async () => await renderAll(name), // async, or it is not awaited
  });
}

const SCRIPT = `
import gzip, json, sys, time
from transformers.utils.chat_template_utils import render_jinja_template
data = json.loads(gzip.open(sys.argv[1]).read())
def run(name):
    for case in data["cases"]:
        if case["template"] != name: continue
        try:
            render_jinja_template([case["messages"]], tools=case["tools"], chat_template=data["templates"][name],
                add_generation_prompt=case["add_generation_prompt"], bos_token="", eos_token="", **case["variables"])
        except Exception: pass
for name in data["templates"]:
    run(name)
    times = []
    for _ in range(20):
        start = time.perf_counter(); run(name); times.append(time.perf_counter() - start)
    print(f"transformers, 50 conversations, {name}: {sorted(times)[10] * 1e3:.1f} ms", file=sys.stderr)
`;

const python = Deno.env.get("PARSCALE_HF_PYTHON");
if (python !== undefined) {
  const args = ["-c", SCRIPT, FILE.pathname];
  await new Deno.Command(python, { args, stdout: "inherit", stderr: "inherit" }).output();
}
