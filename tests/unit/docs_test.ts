/** Checks that what documents name exists: links, anchors, files, tasks, flags, commands, schemas. */
import { assert, assertEquals } from "@std/assert";
import { commands } from "../../cli/commands/mod.ts";
import { loadAll } from "../../cli/framework/command.ts";
import { commonFlags } from "../../cli/framework/common.ts";
import { EXIT_CODES } from "../../cli/output/exit_codes.ts";
import { DOCS, PAGES, read } from "./pages.ts";
import { ROOT } from "../fixtures.ts";

function exists(path: string): boolean {
  try {
    Deno.statSync(ROOT + path);
    return true;
  } catch {
    return false;
  }
}

/** A doc comment as `deno doc --json` has it. */
interface JsDoc {
  readonly tags?: readonly { readonly kind: string }[];
}

/** Text outside fenced blocks. */
const prose = (page: string) => read(page).replace(/^```[\s\S]*?^```$/gm, "");

/** Anchors of a page, as they are made from headings. */
function anchors(page: string): string[] {
  return [...prose(page).matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
    heading!.toLowerCase().replace(/[^\w\- ]/g, "").replaceAll(" ", "-")
  );
}

/** Requires that pages name nothing but what there is; a pattern's group, if any, has the name. */
function assertNamed(
  pages: readonly string[],
  textOf: (page: string) => string,
  pattern: RegExp,
  isKnown: (name: string, page: string) => boolean,
): void {
  const unknown = pages.flatMap((page) =>
    [...textOf(page).matchAll(pattern)].map((match) => match.at(-1)!)
      .filter((name) => !isKnown(name, page)).map((name) => `${page}: ${name}`)
  );
  assertEquals(unknown, []);
}

Deno.test("links of the documents lead to files and headings that exist", () =>
  assertNamed(PAGES, prose, /\]\(([^)\s]+)\)/g, (target, page) => {
    if (/^https?:/.test(target)) return true;
    const [path, anchor] = target.split("#") as [string, string | undefined];
    const file = path === "" ? page : new URL(path, `file:///${page}`).pathname.slice(1);
    return exists(file) && (anchor === undefined || anchors(file).includes(anchor));
  }));

Deno.test("files that the documents name exist", () => {
  const named = /`((?:core|cli|tests|kernels|fixtures|docs|\.ci|\.github)\/[\w./-]+)`/g;
  assertNamed(PAGES, prose, named, exists);
});

Deno.test("tasks that the documents name are in deno.json", () => {
  const { tasks } = JSON.parse(read("deno.json")) as { tasks: Record<string, string> };
  const named = /(?:deno|deno@2\.9\.6) task ([\w:-]+)/g;
  assertNamed(PAGES, read, named, (name) => Object.hasOwn(tasks, name));
});

/** Flags of other programs that appear in prose. */
const OTHER_FLAGS = ["--emulated", "--megabytes", "--memory", "--peer", "--folder"].concat(
  ["--mpi", "--no-python", "--bind-to", "--signal", "--mca"], // of launchers
);

Deno.test("flags that README and docs name are flags of a command", async () => {
  const all = (await loadAll(commands)).flatMap(({ flags }) => Object.keys(flags));
  const known = [...all, ...Object.keys(commonFlags), "help", "version"].map((name) => `--${name}`)
    .concat(OTHER_FLAGS);
  const isKnown = (flag: string) =>
    known.includes(flag) || known.includes(flag.replace("--no-", "--"));
  assertNamed(["README.md", ...DOCS], prose, /(?<![\w-])--[a-z][\w-]*/g, isKnown);
});

Deno.test("README and the tutorial write different files, so that both run in one folder", () => {
  const written = (page: string) =>
    [...read(page).matchAll(/^parscale .*/gm)].flatMap(([line]) =>
      [...line.matchAll(/ --(?:out|html|svg) (\S+)/g)].map(([, path]) => path!)
    );
  const [tour, tutorial] = [written("README.md"), written("docs/tutorial.md")];
  assert(tour.length > 3 && tutorial.length > 6);
  assertEquals(tour.filter((path) => tutorial.includes(path)), []);
});

Deno.test("README has the commands of the registry and at most 180 lines", () => {
  const rows = [...read("README.md").matchAll(/^\| `([\w-]+)` \| (.*) \|$/gm)]
    .map(([, name, summary]) => [name, summary]);
  assertEquals(rows, commands.map(({ name, summary }) => [name, summary]));
  assert(read("README.md").split("\n").length <= 181);
});

Deno.test("docs/formats.md has the exit codes and the schemas of the code", () => {
  const page = read("docs/formats.md");
  const codes = [...page.matchAll(/^\| (\d+) +\| (.*?) +\|$/gm)]
    .map(([, code, meaning]) => [Number(code), meaning!.replaceAll("`", "")]);
  assertEquals(codes, EXIT_CODES.map(({ code, meaning }) => [code, meaning]));
  const sources = (folder: string): string =>
    [...Deno.readDirSync(ROOT + folder)].map(({ name, isDirectory }) =>
      isDirectory
        ? sources(`${folder}/${name}`)
        : name.endsWith(".ts")
        ? read(`${folder}/${name}`)
        : ""
    ).join("");
  const code = sources("cli") + sources("core");
  const named = /`(parscale\.[\w-]+\/\d+)`/g;
  assertNamed(["docs/formats.md"], read, named, (schema) => code.includes(`"${schema}"`));
});

Deno.test("docs/library.md has every field of the configuration of a model", () => {
  const [, body] = /interface ModelConfig \{\n([^]*?)\n\}/.exec(read("core/model/config.ts"))!;
  const fields = [...body!.matchAll(/^ {2}readonly (\w+)/gm)].map(([, name]) => name!);
  assert(fields.length > 20);
  const [, table] = /^\| field of `config` .*\n\|[- |]*\n((?:\|.*\n)+)/m.exec(
    read("docs/library.md"),
  )!;
  const rows = table!.split("\n").map((row) => row.split("|")[1] ?? "");
  const listed = [...rows.join().matchAll(/`(\w+)`/g)].map(([, name]) => name!);
  assertEquals(listed.toSorted(), fields.toSorted());
});

Deno.test("every function of mod.ts has an example", async () => {
  const { stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["doc", "--json", "mod.ts"],
    cwd: ROOT,
  }).output();
  const { nodes } = JSON.parse(new TextDecoder().decode(stdout)) as {
    nodes: Record<
      string,
      { symbols: { name: string; declarations: { kind: string; jsDoc?: JsDoc }[] }[] }
    >;
  };
  const symbols = Object.values(nodes).flatMap(({ symbols }) => symbols);
  assert(symbols.length > 30);
  const hasExample = (jsDoc?: JsDoc) => jsDoc?.tags?.some(({ kind }) => kind === "example");
  const without = symbols.filter(({ declarations }) =>
    declarations.some(({ kind, jsDoc }) => kind === "function" && !hasExample(jsDoc))
  );
  assertEquals(without.map(({ name }) => name), []);
});
