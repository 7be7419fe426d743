/** `parscale eval show`: the exact prompts of a task, one row per request. */
import type { Document, Request } from "../../../core/eval/harness/documents.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { visibleLines } from "../../output/clean.ts";
import type { Invocation } from "../../output/document.ts";
import type { Io } from "../../output/io.ts";
import { openReport } from "../../output/report.ts";
import { openRenderer } from "./model.ts";
import { prepareTasks } from "./prepare.ts";
import type { EvalValues } from "./flags.ts";

/** Prompts shown where no number is asked for. */
const DEFAULT_ROWS = 1;

/** Shows prompts; a conversation needs a model's template. */
export async function showPrompts(
  values: EvalValues,
  io: Io,
  invocation: Invocation,
): Promise<void> {
  const name = values.arguments[1];
  if (name === undefined) {
    throw new UsageError("`eval show` needs a task", {
      hints: ["`parscale eval show gsm8k`; `parscale eval ls` lists the tasks"],
    });
  }
  const limit = values.limit ?? (values.ids.length > 0 ? undefined : DEFAULT_ROWS);
  const prepared = await prepareTasks({ ...values, limit }, io, [name]);
  const { requestsOf } = await import("../../../core/eval/harness/documents.ts");
  const render = values.chat ? await openRenderer(values, io) : undefined;
  const isTable = invocation.format === "table";
  using report = openReport(io, invocation, {
    schema: "parscale.eval-requests/1",
    columns: [
      { key: "doc_id" },
      { key: "kind" },
      { key: "context" },
      { key: "continuation" },
      { key: "stop" },
      { key: "max_tokens" },
    ],
  });
  for (const { task, documents } of prepared) {
    for (const { document, requests: plain } of documents) {
      const requests = render ? await requestsOf(document, render) : plain;
      if (isTable) {
        const text = readable(task.name, document, requests);
        io.write(io.isTerminal("stdout") ? visibleLines(text) : text);
      } else for (const request of requests) report.row(rowOf(document, request));
    }
  }
  if (!isTable) await report.finish();
}

function rowOf({ id }: Document, request: Request): Record<string, unknown> {
  const { kind, context } = request;
  if (kind === "generate_until") {
    return { doc_id: id, kind, context, stop: request.stop, max_tokens: request.maxTokens };
  }
  return { doc_id: id, kind, context, continuation: request.continuation };
}

/** For reading: the prompt as it is, once, and what follows it. */
function readable(name: string, { id }: Document, requests: readonly Request[]): string {
  const lines: string[] = [];
  let last: string | undefined;
  for (const request of requests) {
    if (request.context !== last) lines.push(`--- ${name} ${id}: prompt`, request.context);
    last = request.context;
    if (request.kind === "generate_until") {
      const stops = request.stop.map((stop) => JSON.stringify(stop)).join(" ");
      lines.push(`--- at most ${request.maxTokens} tokens, until ${stops || "the end token"}`);
    } else lines.push(`--- continuation ${JSON.stringify(request.continuation)}`);
  }
  return lines.join("\n") + "\n";
}
