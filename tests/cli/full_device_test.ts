/** A full disk or a closed device is the environment's fault: exit 4 with a clear message. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { MODEL } from "./models.ts";
import { runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

const COMMANDS = [
  "help formats",
  "completions bash",
  "cost --model 1.6B --streams 2",
  `inspect --model ${MODEL} --json`,
  `generate --model ${MODEL} --prompt a --max-tokens 2`,
  `generate --model ${MODEL} --prompt a --prompt b --max-tokens 2 --jsonl`,
  `visualize --model ${MODEL} --text "a b"`,
  `eval ls`,
];

Deno.test({
  name: "a full device under stdout ends every command with 4",
  ignore: Deno.build.os !== "linux",
  async fn() {
    for (const command of COMMANDS) {
      const { code, stderr } = await runShell(`parscale ${command} > /dev/full`);
      assertEquals(code, 4, `${command}: ${stderr}`);
      const [, message] = /(cannot write stdout: no space left on device)/.exec(stderr) ?? [];
      assertEquals(message, "cannot write stdout: no space left on device", stderr);
    }
  },
});

Deno.test({
  name: "a full device under -o ends with 4, and stays the device it is",
  ignore: Deno.build.os !== "linux",
  fn: () =>
    withScratch(async (cwd) => {
      const message = 'cannot write "/dev/full": no space left on device';
      // The --out of eval is a folder.
      for (const command of COMMANDS.filter((line) => !line.startsWith("eval"))) {
        const result = await runShell(`parscale ${command} -o /dev/full`, { cwd });
        assertEquals([result.code, result.stdout], [4, ""], `${command}: ${result.stderr}`);
        assertStringIncludes(result.stderr, /json/.test(command) ? '"code":4' : message);
      }
      assertEquals(Deno.statSync("/dev/full").isCharDevice, true);
      assertEquals([...Deno.readDirSync(cwd)], []);
    }),
});

Deno.test({
  name: "a stderr that cannot be written changes no exit code",
  ignore: Deno.build.os !== "linux",
  async fn() {
    assertEquals((await runShell("parscale nonsense 2> /dev/full")).code, 2);
    assertEquals((await runShell("parscale help formats 2> /dev/full > /dev/full")).code, 4);
  },
});
