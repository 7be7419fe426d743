/**
 * Programs that try to leave the sandbox, to break it, or to pass without an answer; numbered as in the
 * threat list of SECURITY.md's sandbox section.
 *
 * Each would give right answers if it got what it is after, so a pass means a hole.
 */

import {
  type Attack,
  plain,
  plains,
  reach,
  refusals,
  REFUSED,
  RIGHT,
  TO_JS,
} from "./sandbox_programs.ts";

const JAVASCRIPT: readonly Attack[] = [
  ...refusals(
    String.raw`
1 overrides entries of Array → to_js([]).constructor.prototype.entries = lambda *a: iter(())
2* overrides push → to_js([]).constructor.prototype.push = lambda *a: 0
3* overrides get of Map → to_js({1: 2}).constructor.prototype.get = lambda *a: None
4* overrides set and fill of typed arrays → p = to_js(b'x').constructor.prototype\np.set = p.fill = lambda *a: None
5* overrides toString of Object → to_js({}).constructor.prototype.toString = lambda *a: 'x'
11* calls the function constructor → to_js([1]).constructor.constructor('return globalThis')()
12* sets prepareStackTrace → to_js([1]).constructor.constructor.prepareStackTrace = lambda *a: 1
46* fills JavaScript's memory → for _ in range(40): to_js(b'x' * 10 ** 8)`,
    TO_JS,
  ),
  ...refusals(String.raw`
6 overrides then of Promise → import asyncio\nfrom pyodide.ffi import create_once_callable as make\nmake(print).constructor.prototype.then = 1
9 makes a proxy → from pyodide.ffi import create_proxy\ncreate_proxy(attack)
10* makes a JavaScript exception → from pyodide import ffi\nffi.JsException.new('x') if hasattr(ffi.JsException, 'new') else ffi.to_js([1])`),
  plain(
    7,
    "uses to_js inside except BaseException and answers right",
    `${TO_JS}def f(x):\n    try: to_js([1]).constructor\n    except BaseException: pass\n${RIGHT}`,
    REFUSED,
  ),
  plain(
    8,
    "uses JavaScript first in a call",
    `def f(x):\n    if x > 2:\n        from pyodide.ffi import to_js\n        to_js([1])\n${RIGHT}`,
    REFUSED,
  ),
  reach(13, "runs asyncio", "import asyncio\nasync def g(): return 1\nreturn asyncio.run(g())"),
  reach(14, "calls run_js", `from pyodide.code import run_js\nreturn run_js("1 + 1") == 2`),
  reach(15, "imports js", "import js\nreturn js"),
  reach(
    16,
    "looks for proxies with the garbage collector",
    `
import gc, sys
found = [o for o in gc.get_objects() if type(o).__name__ == "JsProxy"]
for m in list(sys.modules.values()):
    found += [v for v in vars(m).values() if type(v).__name__ == "JsProxy"]
return len(found) > 0`,
  ),
];

const MEMORY_ADDRESS = "import ctypes\n";

const C_LEVEL: readonly Attack[] = [
  ...refusals(String.raw`
17 opens the program as a library → import ctypes\nctypes.CDLL(None).system(b'true')
18 makes a C callback → import ctypes\nctypes.CFUNCTYPE(int)(lambda: 1)()
19 calls memset → import ctypes\nctypes.memset(1024, 255, 2 ** 24)`),
  plain(
    20,
    "overwrites the slots of a type",
    `${MEMORY_ADDRESS}class T: pass
def f(x):
    for offset in range(16, 200, 4):
        ctypes.c_uint32.from_address(id(T) + offset).value = 0x00fffff0
    T()(1)
${RIGHT}`,
  ),
  plain(
    21,
    "reads outside the memory",
    `${MEMORY_ADDRESS}def f(x):\n    ctypes.c_uint32.from_address(2 ** 31).value\n${RIGHT}`,
    /out of bounds/,
  ),
  plain(
    22,
    "sets the memory to zero",
    `${MEMORY_ADDRESS}def f(x):
    area = (ctypes.c_char * (2 ** 24)).from_address(1024)
    area[:] = bytes(2 ** 24)
${RIGHT}`,
  ),
  reach(
    23,
    "looks for the reference in memory",
    "import ctypes, re\narea = (ctypes.c_char * 30000000).from_address(1024)\n" +
      'return re.search(b"solution [4]711", bytes(area))',
  ),
];

const PYTHON_STATE: readonly Attack[] = [
  plain(
    24,
    "patches builtins, modules and limits",
    `
import builtins, json, math, sys
builtins.len = builtins.sum = builtins.isinstance = builtins.sorted = lambda *a: 0
builtins.left = sys.left = 1
json.loads = json.dumps = math.sqrt = lambda *a, **k: "38"
sys.setrecursionlimit(10 ** 6)
def f(x): return None
`,
  ),
  ...["'true'", "'=true'", "'{\"t\":5}'", "'x' * (1 << 24)", "None", "print"].map((text) =>
    plain(
      25,
      `answers ${text} in the place of the runner`,
      `
import sys
def f(x):
    frame = sys._getframe(1)
    while frame:
        if "call" in frame.f_globals:
            frame.f_globals["call"].__code__ = (lambda entry, rule, text: ${text}).__code__
            frame.f_globals["_failure"] = lambda e: ${text}
        frame = frame.f_back
`,
    )
  ),
  ...([
    [26, "'true'"],
    [26, "'38'"],
    [26, "'[' * 1000000"],
    [54, "'9' * 8000000"],
    [55, `'{"x":"' + 'f' * (1 << 20) + '"}'`],
    [56, "'[' * 500000 + ']' * 500000"],
  ] as const).map(([number, text]) =>
    plain(
      number,
      `replaces the encoder by ${text}`,
      `
import sys
def f(x):
    frame = sys._getframe(1)
    while frame:
        if "encode" in frame.f_globals: frame.f_globals["encode"] = lambda v: ${text}
        frame = frame.f_back
`,
    )
  ),
  plain(27, "empties sys.modules", "import sys\nsys.modules.clear()\ndef f(x): return None"),
  plain(
    28,
    "leaves exit, weak reference and collector callbacks",
    `
import atexit, gc, weakref
class A:
    def __del__(self): raise SystemExit
keep = A()
atexit.register(lambda: exec("while True: pass"))
weakref.finalize(keep, exec, "while True: pass")
gc.callbacks.append(lambda *a: 1 / 0)
def f(x):
    A()
    gc.disable()
`,
  ),
  plain(
    29,
    "leaves audit, trace and profile hooks",
    `
import sys
sys.addaudithook(lambda *a: 1 / 0)
sys.setprofile(lambda *a: 1 / 0)
sys.settrace(lambda *a: 1 / 0)
def f(x): return None
`,
  ),
];

const FILES: readonly Attack[] = [
  plain(
    30,
    "writes files of the interpreter",
    `
import glob
written = 0
for path in glob.glob("/lib/**", recursive=True) + ["/tmp/left"]:
    try:
        open(path, "wb").write(b"x")
        written += 1
    except OSError: pass
def f(x): return x * 31 + 7 if written else None
`,
  ),
  plain(
    31,
    "opens thousands of files",
    `
import os
keep = []
try:
    for _ in range(4094): keep.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
def f(x): return None
`,
  ),
  plain(32, "closes the standard streams", "import os\nos.closerange(0, 3)\ndef f(x): return None"),
  ...refusals(String.raw`
33 duplicates a stream → import os\nos.dup2(2, 1)
34 changes the folder → import os\nos.chdir("/dev")
35 ends the process → import os\nos._exit(0)`),
  plain(
    36,
    "writes answers of its own",
    `import os\nos.write(1, b"=38\\n=69\\n=100\\n=131\\n=162\\n")\n` +
      `def f(x):\n    os.write(1, b"=38\\n=69\\n")\n    return None\n`,
  ),
  plain(
    37,
    "writes lines of the supervisor",
    "import os\ndef f(x):\n    for n in (0, 1, 2, 3, 4, 5):\n" +
      `        try: os.write(n, b'{"type":"end","id":0,"ending":"done","last":false}\\n')\n` +
      `        except OSError: pass\n    print("PASSED")\n`,
  ),
];

/** Programs that run until their time is up. */
export const ENDLESS: readonly Attack[] = [
  ...plains(String.raw`
38 loops at load → while True: pass
40 matches a catastrophic pattern → import re\ndef f(x): return re.match("(a|a)*b", "a" * 60)
41 loops and catches everything → def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass\n
42 computes a huge power → def f(x): return 7 ** (10 ** 9) % 2 and 9 ** 9 ** 9
43 sleeps → import time\ndef f(x): time.sleep(1000)`),
];

const TIME: readonly Attack[] = [
  ...plains(String.raw`
39 loops in a call → def f(x):\n    while True: pass\n
44 recurses deeply → import sys\nsys.setrecursionlimit(10 ** 8)\ndef g(x): return g(x) + 1\ndef f(x): return g(x)`),
];

const MEMORY: readonly Attack[] = [
  plain(
    47,
    "allocates past the limit",
    "def f(x):\n    a = []\n    while True: a.append(bytes(10 ** 7))\n",
    /MemoryError/,
  ),
  ...plains(String.raw`
48 makes three million lists → def f(x): return len([[] for _ in range(3000000)])
49 grows the heap to 400 MB → keep = bytearray(4 * 10 ** 8)\ndef f(x): return keep[x]
50 allocates far more than there is → def f(x): return bytearray(2 ** 40)`),
];

const RESULTS: readonly Attack[] = [
  ...plains(String.raw`
51 returns two million characters → def f(x): return 'x' * (2 << 20)`),
  plain(
    52,
    "writes a hundred megabytes",
    "import os\ndef f(x):\n    for _ in range(100): os.write(1, b'x' * (1 << 20))\n    return 38",
    /output limit/,
  ),
  plain(
    53,
    "answers with a line of 60 MB",
    "import os\ndef f(x):\n    os.write(1, b'=' + b'1' * (60 << 20) + b'\\n')\n",
    /output limit/,
  ),
  plain(57, "returns a lone surrogate", "def f(x): return '\\ud800'"),
  ...["object", "int", "float", "str", "list", "dict", "tuple", "set"].map((base) =>
    plain(
      58,
      `returns a ${base} with an equality of its own`,
      `class A(${base}):\n    def __eq__(self, o): return True\n` +
        `    def __ne__(self, o): return False\n    __hash__ = None\n` +
        `    def __repr__(self): return "38"\n    __str__ = __format__ = __repr__\n` +
        "def f(x): return A()",
    )
  ),
  ...plains(String.raw`
59 returns an int subclass that lies → class A(int):\n    def __index__(self): return 38\n    __int__ = __index__\ndef f(x): return A()
60 returns a generator without end → from itertools import count\ndef f(x): return map(str, count())
61 returns what raises when it is read → class A(dict):\n    def items(self): raise SystemExit\n    def __iter__(self): raise SystemExit\n    __str__ = __repr__ = __iter__\nclass E(Exception):\n    def __str__(self): raise SystemExit\ndef f(x):\n    if x % 2: raise E\n    return A()
62 returns NaN → def f(x): return float('nan')
63 returns a list nested 100,000 deep → def f(x):\n    a = []\n    for _ in range(100000): a = [a]\n    return a`),
];

const SYSTEM: readonly Attack[] = [
  reach(64, "forks", "import os\npid = os.fork()\nif pid == 0: os._exit(0)\nreturn True"),
  reach(65, "starts a process", `import subprocess\nreturn subprocess.run(["true"])`),
  reach(
    66,
    "starts a thread",
    "import threading\nt = threading.Thread(target=print)\nt.start()\nreturn True",
  ),
  reach(
    67,
    "opens a connection",
    `import socket\nreturn socket.create_connection(("127.0.0.1", 80), 2)`,
  ),
  ...refusals(String.raw`
68 raises a signal → import signal\nsignal.raise_signal(signal.SIGINT)`),
];

const HOST: readonly Attack[] = [
  reach(0, "reads a host file", `return "root" in open("/etc/passwd").read()`),
  reach(
    0,
    "looks for the project",
    `import os\nreturn any("deno.json" in files for _, _, files in os.walk("/"))`,
  ),
  reach(0, "reads the environment", `import os\nreturn "an-environment-secret" in str(os.environ)`),
];

const OTHERS: readonly Attack[] = [
  ...plains(String.raw`
0 leaves at load → raise SystemExit(0)
0 floods the output → def f(x):\n    for _ in range(300): print('x' * 100000)\n`),
  plain(0, "nests deeply at load", `f = ${"(".repeat(3000)}${")".repeat(3000)}`),
  ...plains(String.raw`
0 returns its input → def f(*x): return x
0 has no entry point → def g(x): return x * 31 + 7`),
];

/** Attacks on what bubblewrap could change: the process and what is around it. */
export const OUTWARD: readonly Attack[] = [C_LEVEL, FILES, SYSTEM, HOST].flat();

/** Those that a grader ends soon: all but the endless ones, 45, and 69 to 73, which are not programs. */
export const ATTACKS: readonly Attack[] = [
  ...[JAVASCRIPT, C_LEVEL, PYTHON_STATE, FILES, TIME, MEMORY, RESULTS, SYSTEM, HOST, OTHERS].flat(),
];
