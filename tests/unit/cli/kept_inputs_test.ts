/** No command writes over what it reads: every flag that writes against every flag and argument that reads. */
import { assertEquals, assertRejects } from "@std/assert";
import { type Command, flagsOf, loadAll } from "../../../cli/framework/command.ts";
import { commands as entries } from "../../../cli/commands/mod.ts";
import { camelCase, isList } from "../../../cli/framework/table.ts";
import { keepInputs } from "../../../cli/input/kept_inputs.ts";
import { UsageError } from "../../../core/base/errors.ts";
import { linkSync } from "../../links.ts";
import { withScratch } from "../../scratch.ts";

const commands = await loadAll(entries);
const byName = (name: string) => commands.find((command) => command.name === name)!;

/** Long names of the flags of a type. */
function flagsOfType(command: Command, type: "path" | "output"): string[] {
  const table = flagsOf(command);
  return Object.keys(table).filter((name) => table[name]!.type === type);
}

/** Values of the named flags alone. */
function valuesOf(command: Command, given: Readonly<Record<string, string>>) {
  const { FILE, ...flags } = given, table = flagsOf(command);
  const entries = Object.entries(flags).map(([name, value]) => [
    camelCase(name),
    isList(table[name]!) ? [value] : value,
  ]);
  return { arguments: FILE === undefined ? [] : [FILE], ...Object.fromEntries(entries) };
}

async function assertRefused(
  name: string,
  given: Readonly<Record<string, string>>,
  message: string,
): Promise<void> {
  const command = byName(name);
  const refused = () => keepInputs(command, valuesOf(command, given));
  const error = await assertRejects(refused, UsageError, undefined, JSON.stringify(given));
  assertEquals(error.message, message);
}

async function assertTaken(name: string, given: Readonly<Record<string, string>>): Promise<void> {
  await keepInputs(byName(name), valuesOf(byName(name), given));
}

Deno.test("flags that take an output path are of their own type in every command", () => {
  const others = { visualize: ["html"], cost: ["svg"], fit: ["curves"], plot: ["svg"] };
  for (const command of commands) {
    const own = others[command.name as keyof typeof others] ?? [];
    assertEquals(flagsOfType(command, "output").sort(), [...own, "out"].sort(), command.name);
    const table = flagsOf(command);
    for (const name of flagsOfType(command, "path")) {
      const { summary } = table[name]!;
      assertEquals(/^(write|draw|save|output)/i.test(summary), false, `${command.name} ${name}`);
    }
  }
});

Deno.test("no output of any command is one of its inputs, whichever flags name them", () =>
  withScratch(async (cwd) => {
    const file = `${cwd}/file`, hard = `${cwd}/hard`, soft = `${cwd}/soft`;
    await Deno.writeTextFile(file, "");
    await Deno.link(file, hard);
    linkSync(file, soft);
    let pairs = 0;
    for (const { name, ...command } of commands) {
      const argument = command.arguments?.some(({ sets, choices }) => !sets && !choices);
      for (const output of flagsOfType(byName(name), "output")) {
        const inputs = flagsOfType(byName(name), "path").concat(argument ? ["FILE"] : []);
        for (const input of inputs) {
          for (const path of [file, hard, soft]) {
            await assertRefused(
              name,
              { [input]: file, [output]: path },
              `"${path}" is an input of this command`,
            );
          }
          await assertTaken(name, { [input]: file, [output]: `${cwd}/new` });
          await assertTaken(name, { [input]: "-", [output]: "/dev/null" });
          pairs++;
        }
      }
    }
    assertEquals(pairs > 60, true, `${pairs}`);
  }));

Deno.test("an output neither lies in a folder that is read nor holds what is read", () =>
  withScratch(async (cwd) => {
    const at = (path: string) => `${cwd}/${path}`;
    await Deno.mkdir(at("work/model"), { recursive: true });
    await Deno.writeTextFile(at("work/model/w"), "");
    linkSync(at("work/model"), at("link"));
    await Deno.link(at("work/model/w"), at("hard"));
    await Deno.mkdir(at("run"));
    await Deno.link(at("hard"), at("run/metrics.jsonl"));
    const model = at("work/model"), inModel = `lies in the input "${model}"`;
    await assertRefused("convert", { model, out: `${model}/a/b` }, `"${model}/a/b" ${inModel}`);
    await assertRefused("convert", { model, out: at("link/a") }, `"${at("link/a")}" ${inModel}`);
    await assertRefused("plot", { FILE: model, svg: `${model}/w` }, `"${model}/w" ${inModel}`);
    const holds = `"${at("work")}" holds the input "${model}"`;
    await assertRefused("train", { model, out: at("work") }, holds);
    const has = (path: string) => `"${path}" is, or has a link to, the input "${model}/w"`;
    await assertRefused("generate", { model, out: at("hard") }, has(at("hard")));
    await assertRefused("train", { model, out: at("run") }, has(at("run")));
    await assertTaken("eval", { data: at("work"), out: at("work/results") });
    await assertRefused(
      "train",
      { data: at("work"), out: at("work/run") },
      `"${at("work/run")}" lies in the input "${at("work")}"`,
    );
    await assertTaken("train", { model, out: at("work/run") });
    await assertTaken("train", { model: at("none"), out: at("none/run") });
  }));

Deno.test("weights, patterns, names of adapters, parts of a model and backbones of runs are inputs", () =>
  withScratch(async (cwd) => {
    const at = (path: string) => `${cwd}/${path}`;
    const names = ["a.txt", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "x.partial"];
    for (const name of names) await Deno.writeTextFile(at(name), "");
    await Deno.mkdir(at("run/checkpoint-000001"), { recursive: true });
    await Deno.mkdir(at("base"));
    await Deno.writeTextFile(at("run/last"), "checkpoint-000001\n");
    await Deno.writeTextFile(at("run/checkpoint-000001/introduced.safetensors"), "");
    const owner = JSON.stringify({ base_model_name_or_path: "../../base" });
    await Deno.writeTextFile(at("run/checkpoint-000001/config.json"), owner);
    const input = (path: string) => `"${at(path)}" is an input of this command`;
    await assertRefused("train", { data: at("a.txt=2"), out: at("a.txt") }, input("a.txt"));
    await assertRefused("train", { data: at("*.txt"), out: at("a.txt") }, input("a.txt"));
    const adapter = `a=${at("a.txt")}`;
    await assertRefused("generate", { adapter, out: at("a.txt") }, input("a.txt"));
    const [first, second] = names.slice(1);
    await assertRefused("score", { model: at(first!), out: at(second!) }, input(second!));
    const kept = { FILE: at("x.partial"), out: at("x") };
    await assertRefused("score", kept, input("x.partial"));
    await assertTaken("visualize", kept);
    const lies = `"${at("base/out")}" lies in the input "${at("base")}"`;
    await assertRefused("score", { model: at("run"), out: at("base/out") }, lies);
  }));

Deno.test("two outputs are never one file; a run that continues may be given its own config", () =>
  withScratch(async (cwd) => {
    const file = `${cwd}/a`;
    await Deno.writeTextFile(file, "");
    linkSync(file, `${cwd}/b`);
    const twice = `two outputs are to be written to "${file}"`;
    await assertRefused("plot", { svg: file, out: `${cwd}/b` }, twice);
    await assertRefused("plot", { svg: `${cwd}/n`, out: `${cwd}/./n` }, twice.replace("/a", "/n"));
    await assertTaken("plot", { svg: "/dev/null", out: "/dev/null" });
    const values = valuesOf(byName("train"), { config: file, out: cwd });
    await keepInputs(byName("train"), { ...values, resume: true });
  }));
