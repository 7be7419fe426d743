/**
 * Completions as shells see them: each script is loaded into its shell, and words are completed. A
 * shell that is not installed is skipped.
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { SHELLS } from "../../cli/framework/completions.ts";
import { succeed } from "./models.ts";
import { isInstalled, runCommand, runShell } from "./run.ts";
import { withScratch } from "../scratch.ts";

/** Typed lines, and the words offered for their last one. */
const CASES: readonly (readonly [line: string, words: readonly string[]])[] = [
  ["parscale comple", ["completions"]],
  ["parscale --ver", ["--version"]],
  ["parscale --format json gen", ["generate"]],
  ["parscale generate --tempe", ["--temperature"]],
  ["parscale train --no-pa", ["--no-pack"]],
  ["parscale help generate --mo", []],
  ["parscale completions z", ["zsh"]],
  ["parscale help exit", ["exit-codes"]],
  ["parscale cost ", ["ls"]],
  ["parscale completions --format j", ["json", "jsonl"]],
  ["parscale bench --quantize q", ["q4", "q8"]],
  ["parscale bench --what t", ["train"]],
  ["parscale generate --model al", ["alpha.txt"]],
  ["parscale generate -o al", ["alpha.txt"]],
  ["parscale score al", ["alpha.txt"]],
  ["parscale doctor al", []],
  ["parscale generate --device cuda:1", ["cuda:1"]],
  ["parscale train --preset paper-c", ["paper-cpt"]],
  ["parscale eval --tasks hum", ["humaneval"]],
  ["parscale eval --tasks al", ["alpha.txt"]],
  ["parscale cost --hardware a100-sxm", ["a100-sxm-40gb", "a100-sxm-80gb"]],
];

/** The shell completes every line of a file, in a folder with two files; one line of words each. */
const DRIVERS = {
  bash: `
    source ./script
    while IFS= read -r line; do
      read -ra COMP_WORDS <<< "$line"; [[ "$line" == *" " ]] && COMP_WORDS+=("")
      COMP_CWORD=$(( \${#COMP_WORDS[@]} - 1 )); COMPREPLY=(); _parscale
      echo "\${COMPREPLY[*]}"
    done < lines`,
  fish: `
    source ./script
    for line in (cat lines)
      echo (complete -C "$line" | string replace -r '\\t.*' '')
    end`,
  // Completion needs a line editor, hence a terminal; what is offered passes through compadd.
  zsh: `
    zmodload zsh/zpty
    cat > rc <<'R'
PROMPT=
autoload -Uz compinit; compinit -u -D
source ./script
bindkey '^I' complete-word
compadd() {
  if [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]]; then builtin compadd "$@"; return $?; fi
  local -a hits
  builtin compadd -A hits "$@"
  print -lr -- $hits >> hits
  builtin compadd "$@"
}
finished() { comppostfuncs=( finished ); touch finished }
comppostfuncs=( finished )
touch ready
R
    wait-for() { repeat 400; do [[ -e $1 ]] && break; sleep 0.05; done; rm -f $1 }
    zpty shell zsh -f -i
    zpty -w shell "source ./rc"
    wait-for ready
    while IFS= read -r line; do
      zpty -n -w shell $'\\x15'"$line"$'\\t'
      wait-for finished
      while zpty -r -t shell shown; do :; done
      [[ -e hits ]] && grep . hits | sort | paste -sd ' ' || echo
      rm -f hits
    done < lines`,
};

const FLAGS = { bash: ["--norc"], fish: ["--no-config"], zsh: ["-f"] };

/** Words that a shell offers for each line. */
function complete(shell: keyof typeof DRIVERS, lines: readonly string[]): Promise<string[][]> {
  return withScratch(async (cwd) => {
    const write = (name: string, text: string) => Deno.writeTextFileSync(`${cwd}/${name}`, text);
    for (const name of ["alpha.txt", "beta gamma.txt"]) write(name, "");
    const script = await succeed(`completions ${shell}`);
    write("script", script);
    write("lines", lines.map((line) => `${line}\n`).join(""));
    write("driver", DRIVERS[shell]);
    const options = { cwd, env: { TERM: "dumb", HOME: cwd } };
    const { stdout, stderr } = await runCommand([shell, ...FLAGS[shell], "driver"], options);
    assertEquals(stderr, "");
    const rows = stdout.replace(/\n$/, "").split("\n");
    return rows.map((row) => row.split(" ").filter((word) => word !== "").sort());
  });
}

for (const shell of SHELLS) {
  Deno.test({
    name: `${shell} completes commands, flags, choices and paths`,
    ignore: !isInstalled(shell),
    fn: async () => {
      const offered = await complete(shell, CASES.map(([line]) => line));
      assertEquals(
        CASES.map(([line], i) => [line, offered[i]]),
        CASES.map(([line, words]) => [line, [...words]]),
      );
    },
  });
}

Deno.test("bash: a path with spaces, lists after a comma, values after an equals sign", () =>
  withScratch(async (cwd) => {
    await Deno.writeTextFile(`${cwd}/beta gamma.txt`, "");
    const { stdout, stderr } = await runShell(
      `source <(parscale completions bash)
       complete -p parscale
       try() { COMP_WORDS=(parscale "$@"); COMP_CWORD=$#; COMPREPLY=(); _parscale; echo "\${COMPREPLY[*]}"; }
       try generate --model be
       try score be
       try bench --quantize none,
       try bench --quantize none,q4,q
       try completions --format = cs
       try help -o /etc/host`,
      { cwd },
    );
    assertEquals(stderr, "");
    const lines = stdout.split("\n");
    assertEquals(lines.slice(0, 6), [
      "complete -F _parscale parscale",
      "beta gamma.txt",
      "beta gamma.txt",
      "none,none none,q8 none,q4",
      "none,q4,q8 none,q4,q4",
      "csv",
    ]);
    assertStringIncludes(lines[6]!, "/etc/host");
  }));
