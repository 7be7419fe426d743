/**
 * Programs that try to break out of the sandbox, to break it, or to pass without an answer.
 *
 * Each must be scored a fail or a timeout, and an honest solution that looks for what the attack left
 * behind must pass after it. An attack answers right only where it got what it was after, so that a
 * pass means a hole.
 */
import { assert, assertEquals } from "@std/assert";
import { type CodeProblem, type Grader, openGrader } from "../../core/eval/code/mod.ts";

const FOLDER = await Deno.makeTempDir();
const SECRET = "an-environment-secret";
Deno.env.set("PARSCALE_TEST_SECRET", SECRET);
const LISTENER = Deno.listen({ hostname: "127.0.0.1", port: 0 });
const { port: PORT } = LISTENER.addr as Deno.NetAddr;
let connections = 0;
(async () => {
  for await (const connection of LISTENER) {
    connections++;
    connection.close();
  }
})().catch(() => {});
addEventListener("unload", () => Deno.removeSync(FOLDER, { recursive: true }));

const PROBLEM: CodeProblem = {
  taskId: "HumanEval/1000",
  benchmark: "humaneval",
  prompt: "",
  entryPoint: "f",
  canonicalSolution: "# the reference solution 4711\ndef f(x):\n    return x * 31 + 7\n",
  tests: { kind: "inputs", base: ["[1]", "[2]", "[3]"], plus: ["[4]", "[5]"], atol: 0 },
};

/** Answers right, and only if the interpreter is as it should be. */
const HONEST = `
import builtins, gc, json, math, os, random, sys, threading
def f(x):
    assert len([1, 2]) == 2 and sum([1, 2]) == 3 and math.sqrt(4) == 2 and isinstance(1, int)
    assert json.loads("[1]") == [1] and sorted([2, 1]) == [1, 2] and not hasattr(builtins, "left")
    assert not hasattr(sys, "left") and sys.gettrace() is None and gc.isenabled()
    assert sys.getrecursionlimit() < 100000 and threading.active_count() == 1
    assert not os.path.exists("/tmp/left") and "LEFT" not in os.environ
    assert os.getcwd() != "/dev" and random.Random(1).random() == 0.13436424411240122
    return x * 31 + 7
`;

/** A program that answers right if \`body\` returns something true; it may raise. */
function reaching(body: string): string {
  const indented = body.trim().split("\n").map((line) => `    ${line}`).join("\n");
  return `def attack(x):\n${indented}\ndef f(x):\n    return x * 31 + 7 if attack(x) else None\n`;
}

interface Attack {
  readonly name: string;
  readonly program: string;
  /** Means nothing outside the interpreter in WebAssembly. */
  readonly pyodide?: boolean;
}

const quick = (name: string, program: string): Attack => ({ name, program });
const reach = (name: string, body: string): Attack => ({ name, program: reaching(body) });
const script = (name: string, body: string): Attack => ({
  name: `JavaScript: ${name}`,
  program: reaching(body),
  pyodide: true,
});

const ATTACKS: readonly Attack[] = [
  // Out through JavaScript.
  script("the js module", "import js\nreturn js"),
  script("the pyodide_js module", "import pyodide_js\nreturn pyodide_js"),
  script("run_js", `from pyodide.code import run_js\nreturn run_js("1 + 1") == 2`),
  script(
    "the function constructor of an array",
    `from pyodide.ffi import to_js\nreturn to_js([1]).constructor.constructor("return 1")() == 1`,
  ),
  script(
    "the function constructor of a proxy",
    `from pyodide.ffi import create_proxy\np = create_proxy(attack)\nreturn p.constructor.constructor("return 1")()`,
  ),
  script(
    "the function constructor of a method",
    `from pyodide.ffi import to_js\nreturn to_js([1]).push.constructor("return globalThis")()`,
  ),
  script(
    "objects found by the garbage collector",
    `
import gc, sys
import pyodide.ffi
found = [o for o in gc.get_objects() if type(o).__name__ == "JsProxy"]
for m in list(sys.modules.values()):
    found += [v for v in vars(m).values() if type(v).__name__ == "JsProxy"]
for proxy in found:
    for path in (("constructor", "constructor"), ("constructor",)):
        try:
            o = proxy
            for name in path: o = getattr(o, name)
            if o("return globalThis")(): return True
        except BaseException: pass
return any(hasattr(p, "FS") or hasattr(p, "fetch") or hasattr(p, "Deno") for p in found)`,
  ),
  script(
    "the core module",
    `
import _pyodide_core as core
proxies = [v for v in vars(core).values() if type(v).__name__ == "JsProxy"]
return any(p.constructor.constructor("return 1")() for p in proxies)`,
  ),
  script(
    "a timer that goes on",
    `
import asyncio
async def later():
    import builtins
    builtins.left = 1
asyncio.ensure_future(later())
asyncio.get_event_loop().call_later(0.01, lambda: 1 / 0)
return False`,
  ),
  script(
    "a worker of its own",
    `from pyodide.ffi import to_js\nW = to_js([1]).constructor.constructor("return Worker")()\nreturn W`,
  ),
  script(
    "pyfetch",
    `from pyodide.http import open_url\nreturn open_url("http://127.0.0.1:${PORT}/")`,
  ),
  // Out through the system.
  reach("reading a host file", `return "${SECRET}" in open("${FOLDER}/secret").read()`),
  reach("reading /etc/passwd", `return "root" in open("/etc/passwd").read()`),
  reach(
    "looking for the project",
    `import os\nreturn any("deno.json" in files for _, _, files in os.walk("/") )`,
  ),
  reach(
    "writing a host file",
    `open("${FOLDER}/written", "w").write("x")\nimport os\nreturn os.path.exists("${FOLDER}/secret")`,
  ),
  reach("the environment", `import os\nreturn "${SECRET}" in str(dict(os.environ))`),
  reach(
    "the environment of the parent",
    `return "${SECRET}" in open("/proc/%d/environ" % __import__("os").getppid()).read()`,
  ),
  reach(
    "a socket",
    `import socket\ns = socket.create_connection(("127.0.0.1", ${PORT}), 2)\ns.send(b"x")\nreturn s.recv(1) == b"x"`,
  ),
  reach(
    "urllib",
    `import urllib.request\nreturn urllib.request.urlopen("http://127.0.0.1:${PORT}/", timeout=2)`,
  ),
  reach("a shell", `import os\nos.system("touch ${FOLDER}/shell")\nreturn False`),
  reach(
    "a subprocess",
    `import subprocess\nsubprocess.run(["touch", "${FOLDER}/subprocess"])\nreturn False`,
  ),
  reach(
    "ctypes and system()",
    `import ctypes\nreturn ctypes.CDLL(None).system(b"ls ${FOLDER}/secret") == 0`,
  ),
  reach("a fork", `import os\npid = os.fork()\nif pid == 0: os._exit(0)\nreturn False`),
  reach(
    "signals to everyone",
    `
import os, signal
for pid in (os.getppid(), 1, -1, os.getpid()):
    try: os.kill(pid, signal.SIGKILL)
    except OSError: pass
return False`,
  ),
  // Breaking the interpreter.
  quick("an endless loop", "def f(x):\n    while True: pass\n"),
  quick(
    "an endless loop that catches everything",
    "def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass\n",
  ),
  quick("an endless loop at load", "while True: pass"),
  quick("a catastrophic pattern", `import re\ndef f(x): return re.match("(a|a)*b", "a" * 60)`),
  quick("a huge power", "def f(x): return 7 ** (10 ** 9) % 2 and 9 ** 9 ** 9"),
  quick("a long sleep", "import time\ndef f(x): time.sleep(1000)"),
  quick("a memory bomb of lists", "def f(x):\n    a = [0]\n    while True: a += a\n"),
  quick(
    "a memory bomb of bytes",
    "def f(x):\n    a = []\n    while True: a.append(bytes(10 ** 7))\n",
  ),
  quick("one huge allocation", "def f(x): return bytearray(2 ** 40)"),
  quick("a result without end", "from itertools import count\ndef f(x): return map(str, count())"),
  quick("a huge result", "def f(x): return [[0] * 1000] * 3000"),
  quick("a flood of output", "def f(x):\n    for _ in range(300): print('x' * 100000)\n"),
  quick(
    "a flood of raw output",
    "import os\ndef f(x):\n    for _ in range(300): os.write(1, b'x' * 100000)\n",
  ),
  quick(
    "endless recursion",
    "import sys\nsys.setrecursionlimit(10 ** 8)\ndef g(x): return g(x) + 1\ndef f(x): return g(x)",
  ),
  quick("deep nesting at load", `f = ${"(".repeat(3000)}${")".repeat(3000)}`),
  quick("a cyclic result", "def f(x):\n    a = []\n    a.append(a)\n    return a\n"),
  quick(
    "writing over all memory",
    "import ctypes\ndef f(x):\n    ctypes.memset(1024, 255, 2 ** 24)\n    return None\n",
  ),
  quick("a null function", "import ctypes\ndef f(x): return ctypes.CFUNCTYPE(int)(1)()"),
  // Ending early.
  quick("sys.exit", "import sys\ndef f(x): sys.exit(0)"),
  quick("os._exit", "import os\ndef f(x): os._exit(0)"),
  quick("os.abort", "import os\ndef f(x): os.abort()"),
  quick("leaving at load", "raise SystemExit(0)"),
  quick("an exception of its own", "class E(BaseException): pass\ndef f(x): raise E"),
  quick("an interrupt", "def f(x): raise KeyboardInterrupt"),
  quick(
    "an exception that lies",
    "class E(Exception):\n    def __str__(self): raise SystemExit\ndef f(x): raise E",
  ),
  // Passing without an answer.
  quick(
    "printing what a child says",
    `import os\ndef f(x):\n    for n in (1, 2, 3, 4, 5):\n        try: os.write(n, b'{"type":"end","id":0,"ending":"done"}\\n=38\\n[0,"=38"]\\n')\n        except OSError: pass\n    print("PASSED")\n`,
  ),
  quick(
    "replacing the runner",
    `
import sys
def f(x):
    frame = sys._getframe(1)
    while frame:
        for name in ("encode", "_failure", "rebuild"):
            if name in frame.f_globals: frame.f_globals[name] = lambda *a: "true"
        frame = frame.f_back
`,
  ),
  ...["'{\"t\":5}'", "'[' * 1000000", "'x' * (1 << 24)", "None", "print"].map((text) =>
    quick(
      `answering ${text} in the place of the runner`,
      `
import sys
def f(x):
    frame = sys._getframe(1)
    while frame:
        if "call" in frame.f_globals:
            frame.f_globals["encode"] = lambda v: ${text}
            frame.f_globals["_failure"] = lambda e: ${text}
            frame.f_globals["call"].__code__ = (lambda entry, rule, text: ${text}).__code__
        frame = frame.f_back
`,
    )
  ),
  quick(
    "patching builtins and modules",
    `
import builtins, json, sys, math
builtins.len = builtins.sum = builtins.isinstance = builtins.sorted = lambda *a: 0
builtins.left = sys.left = 1
json.loads = json.dumps = math.sqrt = lambda *a, **k: "38"
sys.modules["math"] = sys.modules["random"] = json
def f(x): return None
`,
  ),
  reach(
    "looking for the reference in objects",
    `
import gc, re, sys
seen = gc.get_objects() + [f.f_locals for f in sys._current_frames().values()]
values = [v for o in seen if isinstance(o, dict) for v in list(o.values()) if isinstance(v, str)]
return any(re.search("solution [4]711", v) for v in values)`,
  ),
  script(
    "looking for the reference in memory",
    `import ctypes, re\nreturn re.search(b"solution [4]711", ctypes.string_at(1024, 30000000))`,
  ),
  quick(
    "an equality of its own",
    "class A:\n    def __eq__(self, o): return True\n    __hash__ = None\ndef f(x): return A()",
  ),
  ...["int", "float", "str", "list", "dict", "tuple", "set"].map((base) =>
    quick(
      `a ${base} with an equality of its own`,
      `class A(${base}):\n    def __eq__(self, o): return True\n    def __ne__(self, o): return False\n    __hash__ = ${base}.__hash__\n    def __index__(self): return 38\n    def __repr__(self): return "38"\n    __str__ = __format__ = __repr__\ndef f(x): return A()`,
    )
  ),
  quick(
    "a type that lies about itself",
    "class A:\n    __class__ = int\n    __module__ = 'builtins'\n    def __int__(self): return 38\n    __index__ = __int__\ndef f(x): return A()",
  ),
  quick(
    "a metaclass that lies",
    "class M(type):\n    def __eq__(c, o): return True\n    __hash__ = type.__hash__\nclass A(metaclass=M): pass\ndef f(x): return A()",
  ),
  quick("the input itself", "def f(*x): return x"),
  quick("no entry point", "def g(x): return x * 31 + 7"),
  // Leaving something behind.
  quick("files", `open("/tmp/left", "w").write("x")\ndef f(x): return open("/tmp/left").read()`),
  quick(
    "damaged libraries",
    `
import glob
for path in glob.glob("/lib/**", recursive=True):
    try: open(path, "wb").write(b"")
    except OSError: pass
def f(x): return None
`,
  ),
  quick(
    "another folder",
    `import os\nos.chdir("/dev")\nos.environ["LEFT"] = "1"\ndef f(x): return None`,
  ),
  quick(
    "threads",
    "import threading\ndef loop():\n    while True: pass\ndef f(x): threading.Thread(target=loop).start()",
  ),
  quick(
    "exit handlers",
    "import atexit\natexit.register(lambda: exec('while True: pass'))\ndef f(x): 0",
  ),
  quick("a tracer", "import sys\nsys.settrace(lambda *a: 1 / 0)\ndef f(x): return None"),
  quick(
    "finalizers",
    "class A:\n    def __del__(self): raise SystemExit\nkeep = A()\ndef f(x):\n    A()\n    import gc; gc.disable()\n",
  ),
  quick(
    "many open files",
    "import sys\nkeep = [open('/dev/null') for _ in range(300)]\ndef f(x): 0",
  ),
  quick("closed streams", "import os\nos.closerange(0, 100)\ndef f(x): return None"),
];

async function attack(grader: Grader, attacks: readonly Attack[], t: Deno.TestContext) {
  for (const { name, program } of attacks) {
    await t.step(name, async () => {
      const { base, plus, detail } = await grader.grade(PROBLEM, program);
      assert(base === "fail" || base === "timeout", `${base}: ${detail}`);
      assertEquals(plus, base);
      const begin = performance.now();
      const after = await grader.grade(PROBLEM, HONEST);
      assertEquals([after.base, after.plus, after.detail], ["pass", "pass", undefined]);
      // A replaced interpreter takes a fraction of a second; this only bounds a hang.
      assert(performance.now() - begin < 60_000);
    });
  }
}

async function withGrader(lane: "pyodide" | "bwrap", test: (grader: Grader) => Promise<void>) {
  // One worker: the honest solution meets the interpreter that the attack had.
  await using grader = await openGrader({ lane, workers: 1, cacheFolder: `${FOLDER}/cache` });
  assertEquals((await grader.grade(PROBLEM, HONEST)).plus, "pass");
  await test(grader);
}

const hasBubblewrap = await openGrader({ lane: "bwrap", workers: 1, cacheFolder: FOLDER }).then(
  async (grader) => (await grader[Symbol.asyncDispose](), true),
  () => false,
);

for (const lane of ["pyodide", "bwrap"] as const) {
  Deno.test({
    name: `attacks on the ${lane} sandbox fail and leave nothing behind`,
    ignore: lane === "bwrap" && !hasBubblewrap,
    fn: async (t) => {
      await Deno.writeTextFile(`${FOLDER}/secret`, SECRET);
      const fitting = ATTACKS.filter(({ pyodide }) => lane === "pyodide" || !pyodide);
      await withGrader(lane, (grader) => attack(grader, fitting, t));
      for (const name of ["written", "shell", "subprocess"]) {
        assert(await Deno.stat(`${FOLDER}/${name}`).then(() => false, () => true), name);
      }
      assertEquals(connections, 0);
    },
  });
}

Deno.test("a sandbox process that dies fails only the job it had", async () => {
  await using grader = await openGrader({
    lane: "pyodide",
    workers: 2,
    cacheFolder: `${FOLDER}/cache`,
  });
  const looping = grader.grade(PROBLEM, "while True: pass");
  const honest = Array.from({ length: 5 }, () => grader.grade(PROBLEM, HONEST));
  await Promise.all(honest);
  for (const pid of await children()) Deno.kill(pid, "SIGKILL");
  assert((await looping).base !== "pass");
  assertEquals((await grader.grade(PROBLEM, HONEST)).plus, "pass");
});

/** The sandbox processes of this file, by the cache they may read; other tests run beside it. */
async function children(): Promise<number[]> {
  const found: number[] = [];
  for await (const { name } of Deno.readDir("/proc")) {
    if (!/^\d+$/.test(name) || Number(name) === Deno.pid) continue;
    const line = await Deno.readTextFile(`/proc/${name}/cmdline`).catch(() => "");
    if (line.includes("code/child.ts") && line.includes(FOLDER)) found.push(Number(name));
  }
  assert(found.length > 0);
  return found;
}

Deno.test("honest programs with unusual habits pass", async (t) => {
  const habits = {
    "printing and reading nothing": "def f(x):\n    print(x, flush=True)\n    return x * 31 + 7",
    "a subclass as result": "class A(int): pass\ndef f(x): return A(x * 31 + 7)",
    "a float that equals": "def f(x): return float(x * 31 + 7)",
    "caches": "from functools import cache\n@cache\ndef f(x): return x * 31 + 7",
    "a main block": "def f(x): return x * 31 + 7\nif __name__ == '__main__': raise SystemExit",
    "randomness and time":
      "import random, time\ndef f(x):\n    random.random(), time.time()\n    return x * 31 + 7",
  };
  await withGrader("pyodide", async (grader) => {
    for (const [name, program] of Object.entries(habits)) {
      await t.step(name, async () => {
        assertEquals((await grader.grade(PROBLEM, program)).plus, "pass");
      });
    }
  });
});
