/**
 * A clone that is imported by a program in another folder, in an empty HOME. It fetches packages from
 * the npm registry, as an installation does.
 */
import { assertEquals } from "@std/assert";
import { ROOT } from "../../cli/release/stage.ts";
import { withScratch } from "../scratch.ts";

/** Runs a program as the user whose HOME is `home`; settings of the registry stay. */
async function runAt(home: string, [program, ...args]: readonly string[], cwd = home) {
  const { code, stdout, stderr } = await new Deno.Command(program!, {
    args,
    cwd,
    env: { HOME: home, NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1", XDG_CACHE_HOME: `${home}/cache` },
    stdin: "null",
  }).output();
  const text = new TextDecoder();
  return { code, stdout: text.decode(stdout), stderr: text.decode(stderr) };
}

Deno.test("a program in another folder checks and runs with a link to the clone", () =>
  withScratch(async (home) => {
    const config = { links: [ROOT], unstable: ["worker-options"] };
    await Deno.writeTextFile(`${home}/deno.json`, JSON.stringify(config));
    await Deno.writeTextFile(
      `${home}/main.ts`,
      `import { type Completion, openModel } from ${JSON.stringify(`${ROOT}mod.ts`)};
using model = await openModel(${JSON.stringify(`${ROOT}fixtures/models/tiny-qwen2`)});
const messages = [{ role: "user", content: "a" }];
const { tokens }: Completion = await model.complete(messages, { maxTokens: 4 });
console.log(tokens.length);
`,
    );
    const checked = await runAt(home, [Deno.execPath(), "check", "main.ts"]);
    assertEquals(checked.code, 0, checked.stderr);
    const { stdout, stderr } = await runAt(home, [Deno.execPath(), "run", "-A", "main.ts"]);
    assertEquals(stdout, "4\n", stderr);
  }));
