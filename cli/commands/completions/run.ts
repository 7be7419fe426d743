/** Carries out `parscale completions`. */
import { loadAll, type ValuesOf } from "../../framework/command.ts";
import { completionScript, type Shell } from "../../framework/completions.ts";
import type { Context } from "../../framework/context.ts";
import { refuseFormat } from "../../input/forms.ts";
import { writeText } from "../../output/sink.ts";
import { commands } from "../mod.ts";
import type { command } from "./flags.ts";

/** Runs the command. */
export async function run(
  { arguments: [shell], out, overwrite }: ValuesOf<typeof command>,
  ctx: Context,
): Promise<void> {
  const { io, invocation } = ctx;
  ctx.begin();
  refuseFormat(invocation, "a completion script");
  const script = completionScript(shell as Shell, await loadAll(commands));
  writeText(io, script, out, overwrite);
}
