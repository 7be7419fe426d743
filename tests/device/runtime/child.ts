/** Processes of their own, for what tests that share one process cannot see: folders, memory. */
import { assert } from "@std/assert";
import { environment } from "../../cli/run.ts";
import { ROOT } from "../../fixtures.ts";

/** A module of the project as a quoted specifier. */
export function moduleAt(path: string): string {
  return JSON.stringify(new URL(`../../../${path}`, import.meta.url).href);
}

/** Code that runs a small program on the cpu device. */
export const CHILD_RUN = `
  import { openDevice } from ${moduleAt("core/runtime/mod.ts")};
  import { Builder } from ${moduleAt("core/graph/builder.ts")};
  const g = new Builder("child");
  const x = g.input("x", { dtype: "f32", shape: [8, 8] });
  g.output("y", x.matmul(x));
  const device = await openDevice("cpu");
  const executable = await device.compile(g.build(), new Map());
  const type = { dtype: "f32", shape: [8, 8] };
  await executable.run(new Map([["x", device.allocate(type)], ["y", device.allocate(type)]]));
`;

/** Runs code with the environment's minimum and `env`; returns what it printed. */
export async function runChild(
  code: string,
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  const config = `${ROOT}deno.json`;
  const { stdout, stderr, success } = await new Deno.Command(Deno.execPath(), {
    args: ["eval", "--config", config, "--ext=ts", "--no-check", code],
    env: { ...environment(), ...env },
    clearEnv: true,
  }).output();
  assert(success, new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout);
}
