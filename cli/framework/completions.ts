/**
 * Completion scripts for bash, zsh and fish. They are static text, so completing never starts the program.
 * Words offered are command names, long flags, known values after a flag that has them (in lists after
 * every comma), and paths after a flag that takes one. The first word that is a command's name is the
 * command, as the program itself has it.
 */
import { type Command, flagsOf } from "./command.ts";
import { commonFlags } from "./common.ts";
import { type Flag, isList, isNegatable, takesValue } from "./table.ts";

/** Shells that are served. */
export const SHELLS = ["bash", "zsh", "fish"] as const;

/** One of them. */
export type Shell = typeof SHELLS[number];

interface FlagWords {
  readonly name: string;
  readonly letter: string | undefined;
  readonly summary: string;
  readonly kind: "none" | "path" | "choice" | "list" | "listOrFile" | "text";
  readonly choices: readonly string[];
}

interface CommandWords {
  readonly name: string;
  readonly summary: string;
  readonly flags: readonly FlagWords[];
  /** Words for the first positional argument. */
  readonly arguments: readonly string[];
  /** True if paths are arguments. */
  readonly files: boolean;
}

function wordsOf(command: Command): CommandWords {
  const flags = Object.entries(flagsOf(command)).map(([name, flag]): FlagWords => {
    const choices = knownValues(command, name, flag);
    return {
      name: isNegatable(flag) ? `no-${name}` : name,
      letter: flag.letter,
      summary: flag.summary,
      kind: !takesValue(flag)
        ? "none"
        : choices.length > 0
        ? !isList(flag) ? "choice" : flag.placeholder?.endsWith("|FILE") ? "listOrFile" : "list"
        : flag.type === "path" || flag.type === "output"
        ? "path"
        : "text",
      choices,
    };
  });
  const words = command.arguments?.find(({ sets }) => sets === undefined)?.choices ?? [];
  const files =
    command.arguments?.some(({ choices, sets }) =>
      choices === undefined && (sets === undefined || words.length === 0)
    ) ?? false;
  return { name: command.name, summary: command.summary, flags, arguments: words, files };
}

/** Values that can be offered: choices, well-known names, or the command's own presets. */
function knownValues({ presets = {} }: Command, name: string, flag: Flag): readonly string[] {
  if (flag.type === "choice") return flag.choices;
  return name === "preset" ? Object.keys(presets) : flag.suggestions ?? [];
}

/** Command and flag spellings that precede a value of the given kind. */
function spellingsOf(flag: FlagWords): string[] {
  return flag.letter === undefined ? [`--${flag.name}`] : [`-${flag.letter}`, `--${flag.name}`];
}

/** Flags that make sense without a command. */
const TOP = ["help", "version"] as const;

function bashReply({ kind, choices }: FlagWords): string {
  const words = choices.join(" ");
  if (kind === "choice") return `COMPREPLY=($(compgen -W "${words}" -- "$word"))`;
  if (kind === "list") return `COMPREPLY=($(compgen -P "$head" -W "${words}" -- "\${word##*,}"))`;
  if (kind === "listOrFile") {
    return `COMPREPLY=($(compgen -P "$head" -W "${words}" -f -- "\${word##*,}"))`;
  }
  return kind === "path" ? `_parscale_files "$word"` : "COMPREPLY=()";
}

function bash(commands: readonly CommandWords[]): string {
  const cases = commands.map((command) => {
    const values = command.flags.filter((flag) => flag.kind !== "none").map((flag) => {
      return `        ${spellingsOf(flag).join("|")}) ${bashReply(flag)}; return ;;`;
    });
    const flags = command.flags.map((flag) => `--${flag.name}`).join(" ");
    return `    ${command.name})
      case "$previous" in
${values.join("\n")}
      esac
      flags="${flags}"
      words="${command.arguments.join(" ")}"
      files="${command.files ? "yes" : ""}" ;;`;
  });
  const names = commands.map(({ name }) => name).join("|");
  return `# bash completion of parscale; load with: source <(parscale completions bash)
_parscale() {
  local word="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}"
  local command="" flags="${TOP.map((name) => `--${name}`).join(" ")}" words="${
    names.replaceAll("|", " ")
  }" files="" head="" i
  # The shell splits --flag=value into three words.
  if [[ "$word" == "=" ]]; then word=""
  elif [[ "$previous" == "=" ]]; then previous="\${COMP_WORDS[COMP_CWORD-2]}"; fi
  [[ "$word" == *,* ]] && head="\${word%,*},"
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "\${COMP_WORDS[i]}" in ${names}) command="\${COMP_WORDS[i]}"; break ;; esac
  done
  case "$command" in
${cases.join("\n")}
  esac
  if [[ "$word" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$word"))
  elif [[ -n "$words" ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  elif [[ -n "$files" ]]; then
    _parscale_files "$word"
  fi
}
# Names may hold spaces, so only line ends separate them.
_parscale_files() {
  local IFS=$'\n'
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -f -- "$1"))
}
complete -F _parscale parscale
`;
}

function zsh(commands: readonly CommandWords[]): string {
  // Brackets and colons separate the parts of a specification; quotes end the word.
  const plain = (text: string) =>
    text.replace(/[[\]:\\]/g, (character) => `\\${character}`).replaceAll("'", "'\\''");
  const action = (flag: FlagWords) =>
    ({
      none: "",
      text: `:${flag.name}: `,
      path: `:${flag.name}:_files`,
      choice: `:${flag.name}:(${flag.choices.map(plain).join(" ")})`,
      list: `:${flag.name}:_values -s , ${flag.name} ${flag.choices.map(plain).join(" ")}`,
      listOrFile: `:${flag.name}:{ _values -s , ${flag.name} ${
        flag.choices.map(plain).join(" ")
      }; _files }`,
    })[flag.kind];
  const cases = commands.map((command) => {
    const specs = command.flags.flatMap((flag) =>
      spellingsOf(flag).map((spelling) => {
        const equals = flag.kind !== "none" && spelling.startsWith("--") ? "=" : "";
        return `        '*${spelling}${equals}[${plain(flag.summary)}]${action(flag)}'`;
      })
    );
    const words = command.arguments.length === 0
      ? []
      : [`        '1:argument:(${command.arguments.join(" ")})'`];
    const files = command.files ? ["        '*:file:_files'"] : [];
    return `    ${command.name})
      _arguments \\
${[...specs, ...words, ...files].join(" \\\n")} ;;`;
  });
  const list = commands.map(({ name, summary }) => `    '${name}:${plain(summary)}'`);
  return `#compdef parscale
# zsh completion of parscale; save as _parscale in a folder of $fpath
_parscale() {
  local -a commands
  commands=(
${list.join("\n")}
  )
  local command="" i
  for (( i = 2; i < CURRENT; i++ )); do
    case "\${words[i]}" in
      ${commands.map(({ name }) => name).join("|")}) command="\${words[i]}"; break ;;
    esac
  done
  if [[ -z "$command" && "$PREFIX" == -* ]]; then
    _arguments ${TOP.map((name) => `'--${name}[${plain(commonFlags[name].summary)}]'`).join(" ")}
    return
  elif [[ -z "$command" ]]; then
    _describe command commands
    return
  fi
  shift $(( i - 1 )) words
  (( CURRENT -= i - 1 ))
  case "$command" in
${cases.join("\n")}
  esac
}
compdef _parscale parscale
`;
}

function fish(commands: readonly CommandWords[]): string {
  const quote = (text: string) => `'${text.replace(/['\\]/g, (character) => `\\${character}`)}'`;
  const names = commands.map(({ name }) => name).join(" ");
  const lines = [
    "# fish completion of parscale; save as ~/.config/fish/completions/parscale.fish",
    "function __parscale_on -a command",
    "  set -l words (commandline -opc)",
    "  for word in $words[2..]",
    `    contains -- $word ${names}; or continue`,
    '    test "$word" = "$command"; return',
    "  end",
    '  test -z "$command"',
    "end",
    "complete -c parscale -f",
    ...TOP.map((name) =>
      `complete -c parscale -n __parscale_on -l ${name} -d ${quote(commonFlags[name].summary)}`
    ),
  ];
  for (const command of commands) {
    const first = `complete -c parscale -n __parscale_on -a ${command.name}`;
    lines.push(`${first} -d ${quote(command.summary)}`);
    const seen = `-n ${quote(`__parscale_on ${command.name}`)}`;
    for (const flag of command.flags) {
      const letter = flag.letter === undefined ? "" : ` -s ${flag.letter}`;
      const choices = flag.choices.join(" ");
      const value = {
        none: "",
        text: " -x",
        path: " -r -F",
        choice: ` -x -a ${quote(choices)}`,
        listOrFile: ` -r -F -a ${quote(`(__fish_append , ${choices})`)}`,
        list: ` -x -a ${quote(`(__fish_append , ${choices})`)}`,
      }[flag.kind];
      const name = `-l ${flag.name}${letter}${value} -d ${quote(flag.summary)}`;
      lines.push(`complete -c parscale ${seen} ${name}`);
    }
    if (command.arguments.length > 0) {
      lines.push(`complete -c parscale ${seen} -a ${quote(command.arguments.join(" "))}`);
    }
    if (command.files) lines.push(`complete -c parscale ${seen} -F`);
  }
  return lines.join("\n") + "\n";
}

/** The script for a shell. */
export function completionScript(shell: Shell, commands: readonly Command[]): string {
  const generate = { bash, zsh, fish }[shell];
  return generate(commands.map(wordsOf));
}
