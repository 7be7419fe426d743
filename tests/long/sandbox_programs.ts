/** Hostile programs for the sandbox, honest ones that must keep passing, and whether bubblewrap works. */

/** One hostile program. */
export interface Attack {
  readonly number: number;
  readonly name: string;
  readonly program: string;
  /** Pattern of the detail of its failure. */
  readonly detail?: RegExp;
  /** True if the call that an earlier one was refused for is refused first. */
  readonly repeats?: boolean;
}

/** Returns whether bubblewrap is installed and may make namespaces here. */
export async function bubblewrapWorks(): Promise<boolean> {
  const args = ["--unshare-all", "--ro-bind", "/", "/", "true"];
  try {
    return (await new Deno.Command("bwrap", { args }).output()).success;
  } catch {
    return false; // not installed
  }
}

export const REFUSED = /^refused a call out of the sandbox: \w+/;
export const RIGHT = "    return x * 31 + 7\n";

function indented(body: string): string {
  return body.trim().split("\n").map((line) => `    ${line}`).join("\n");
}

/** Attacks at load and in every call, hides all errors, and answers right. */
export function hiding(body: string): string {
  return `def attack():\n${indented(body)}\ntry:\n    attack()\nexcept BaseException:\n    pass\n` +
    `def f(x):\n    try:\n        attack()\n    except BaseException:\n        pass\n${RIGHT}`;
}

/** Answers right only if `body` returns something true; it may raise. */
export function reaching(body: string): string {
  return `def attack(x):\n${indented(body)}\ndef f(x):\n` +
    "    return x * 31 + 7 if attack(x) else None\n";
}

export const TO_JS = "from pyodide.ffi import to_js\n";

/** Lines of number, name and program, in which `\n` is a line feed; a star may follow the number. */
const rows = (text: string) =>
  text.trim().split("\n").map((line) => {
    const [, number, star, name, body] = /^(\d+)(\*?) (.*?) → (.*)$/.exec(line)!;
    const program = body!.replaceAll("\\n", "\n");
    return { number: Number(number), name: name!, program, repeats: star === "*" };
  });

/** Attacks that are refused a call; a star marks those whose first call is that of an earlier one. */
export const refusals = (text: string, before = ""): Attack[] =>
  rows(text).map((row) => ({ ...row, program: hiding(before + row.program), detail: REFUSED }));
export const plains: (text: string) => Attack[] = rows;
export const reach = (number: number, name: string, body: string): Attack => ({
  number,
  name,
  program: reaching(body),
});
export const plain = (number: number, name: string, program: string, detail?: RegExp): Attack => ({
  number,
  name,
  program,
  detail,
});

/** Habits of honest programs that must keep passing. */
export const HONEST: Readonly<Record<string, string>> = {
  "prints": "def f(x):\n    print(x, flush=True)\n    return x * 31 + 7",
  "returns a subclass": "class A(int): pass\ndef f(x): return A(x * 31 + 7)",
  "returns a float that equals": "def f(x): return float(x * 31 + 7)",
  "caches": "from functools import cache\n@cache\ndef f(x): return x * 31 + 7",
  "has a main block": `def f(x): return x * 31 + 7\nif __name__ == '__main__': raise SystemExit`,
  "uses random numbers and clocks":
    "import random, time\ndef f(x):\n    random.random(), time.time()\n    return x * 31 + 7",
  "uses c_int32": "from ctypes import c_int32\ndef f(x): return c_int32(x * 31 + 7).value",
  "sets a signal handler":
    "import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\ndef f(x): return x * 31 + 7",
  "sleeps a little": "import time\ndef f(x):\n    time.sleep(0.01)\n    return x * 31 + 7",
  "collects garbage": "import gc\ndef f(x):\n    gc.collect()\n    return x * 31 + 7",
  "uses a lock": "import threading\nl = threading.Lock()\ndef f(x):\n    with l: return x * 31 + 7",
  "warns": "import warnings\ndef f(x):\n    warnings.warn('old')\n    return x * 31 + 7",
  "formats a traceback":
    "import traceback\ndef f(x):\n    try: 1 / 0\n    except ZeroDivisionError: traceback.format_exc()\n" +
    "    return x * 31 + 7",
  "imports sixty modules": `import ${
    ("abc argparse array ast base64 binascii bisect calendar cmath codecs collections colorsys " +
      "contextlib copy csv dataclasses datetime decimal difflib dis enum fnmatch fractions " +
      "functools glob graphlib gzip hashlib heapq hmac html inspect io itertools json keyword " +
      "linecache locale logging math numbers operator os pathlib pickle pprint queue random re " +
      "secrets shlex statistics string struct sys textwrap time timeit token types typing unicodedata " +
      "uuid weakref zlib").split(" ").slice(0, 62).join(", ")
  }\ndef f(x): return x * 31 + 7`,
};
