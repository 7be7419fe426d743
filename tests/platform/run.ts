/**
 * Runs tests on a platform other than this machine's: the arm64 build of deno under qemu, or the
 * Windows build under Wine, each in a Debian root of its own.
 *
 * Usage: `deno task test:platform arm64|windows [TEST…]`. Takes Linux on x86-64, root, debootstrap, npm,
 * and for arm64 Debian's qemu-user or qemu-user-static, version 8.1 or later. The first run fetches
 * 0.3 to 1 GB of Debian packages and deno's npm package into PARSCALE_PLATFORM_ROOTS (/var/tmp).
 */
import { ROOT } from "../fixtures.ts";

interface Target {
  /** Debian's name of the architecture of the root. */
  readonly architecture: string;
  /** Debian packages beside the smallest system. */
  readonly packages: readonly string[];
  /** npm package with deno, and the program in it. */
  readonly deno: readonly [name: string, program: string];
  /** The command that starts deno. */
  readonly start: readonly string[];
  /** Tests that fit into an hour; speed and sizes of memory are not this emulation's. */
  readonly tests: readonly string[];
}

const TARGETS: Readonly<Record<string, Target>> = {
  arm64: {
    architecture: "arm64",
    packages: [],
    deno: ["@deno/linux-arm64-glibc", "deno"],
    start: ["/deno/deno"],
    tests: [
      ...["base/platform", "checkpoint", "tokenizer", "data", "hub"].map((name) => `unit/${name}`),
      ...["generate/decoding_golden", "model/model", "runtime/quantized", "runtime/weights"]
        .map((name) => `device/${name}_test.ts`),
      "cli/train_golden_test.ts",
    ],
  },
  windows: {
    architecture: "amd64",
    packages: ["wine64", "wine"],
    deno: ["@deno/win32-x64", "deno.exe"],
    // Started by a Windows program, since deno asks for the id of its parent.
    start: ["wine", "cmd", "/c", "Z:/deno/deno.exe"],
    tests: ["unit", "device"],
  },
};

/** Makes the root at `$1`, for the architecture `$2`, with the npm package `$3`. */
const MAKE = `set -eu
root=$1 architecture=$2 package=$3; shift 3
version=$(deno --version | sed -n 's/^deno \\([0-9]*\\.[0-9]*\\)\\..*/\\1/p')
rm -rf "$root"; mkdir -p "$root"
if [ "$architecture" = amd64 ]; then debootstrap --variant=minbase trixie "$root"
else debootstrap --foreign --variant=minbase --arch="$architecture" trixie "$root"; fi
[ ! -L "$root/proc" ] || { rm "$root/proc"; mkdir "$root/proc"; }
mkdir -p "$root/deno" "$root/parscale" "$root/root"
cd "$root/deno"
# Not every version of deno has a package for every platform.
tar -xzf "$(npm pack --silent "$package@~$version.0")" --strip-components=1
chmod +x deno deno.exe 2> /dev/null || true
if [ $# -gt 0 ]; then
  cp /etc/resolv.conf "$root/etc/"
  chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
fi
cp /etc/hosts "$root/etc/hosts"
touch "$root/.made"`;

/** Tells the kernel how to start programs for arm64, by the first emulator that is installed. */
const REGISTER = `set -eu
folder=/proc/sys/fs/binfmt_misc
[ -e "$folder/register" ] || mount -t binfmt_misc none "$folder"
[ ! -e "$folder/qemu-aarch64" ] || exit 0
program=$(command -v qemu-aarch64-static || command -v qemu-aarch64)
zeros='\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00' ones='\\xff\\xff\\xff\\xff\\xff\\xff\\xff'
magic='\\x7fELF\\x02\\x01\\x01\\x00'"$zeros"'\\x02\\x00\\xb7\\x00'
mask="$ones"'\\x00\\xff'"$ones"'\\xfe\\xff\\xff\\xff'
printf '%s' ":qemu-aarch64:M::$magic:$mask:$program:F" > "$folder/register"`;

/** The program under test for tests/cli: progress, which only slow commands show, would be in the way. */
const PROGRAM = ["/deno/deno", "run", "-A", "--node-modules-dir=manual", "/parscale/mod.ts"]
  .concat("--no-progress");

/** Runs a command in the root at `$1`, with the project at /parscale; mounts end with the command. */
const ENTER = `set -eu
root=$1 project=$2 program=$3; shift 3
mount --rbind /dev "$root/dev"; mount --rbind /sys "$root/sys"; mount -t proc proc "$root/proc"
mount --bind "$project" "$root/parscale"
exec nice chroot "$root" env -i PATH=/usr/bin:/bin HOME=/root NO_COLOR=1 WINEDEBUG=-all \\
  DENO_NO_UPDATE_CHECK=1 PARSCALE_TEST_PROGRAM="$program" sh -c 'cd /parscale && exec "$@"' sh "$@"`;

async function shell(script: string, args: readonly string[]): Promise<void> {
  const { code } = await new Deno.Command("sh", { args: ["-c", script, "sh", ...args] }).spawn()
    .status;
  if (code !== 0) Deno.exit(code);
}

/** Runs one test file or folder; returns the runner's summary, and its output where it failed. */
async function test(root: string, target: Target, path: string): Promise<[string, string?]> {
  const project = ROOT;
  const command = [...target.start, "test", "-A", "--no-check", path];
  const { success, stdout, stderr } = await new Deno.Command("unshare", {
    args: ["--mount", "sh", "-c", ENTER, "sh", root, project, JSON.stringify(PROGRAM), ...command],
  }).output();
  const text = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
  const summary = /^.*\d+ passed.*$/m.exec(text)?.[0] ?? "no summary";
  return success ? [summary] : [summary, text];
}

const [name, ...given] = Deno.args;
const target = TARGETS[name ?? ""];
if (!target) {
  console.error(`usage: deno task test:platform ${Object.keys(TARGETS).join("|")} [TEST…]`);
  Deno.exit(2);
}
const root = `${Deno.env.get("PARSCALE_PLATFORM_ROOTS") ?? "/var/tmp"}/parscale-${name}`;
if (!await Deno.stat(`${root}/.made`).catch(() => undefined)) {
  await shell(MAKE, [root, target.architecture, target.deno[0], ...target.packages]);
}
if (target.architecture === "arm64") await shell(REGISTER, []);
let failed = 0;
for (const path of given.length > 0 ? given : target.tests.map((path) => `tests/${path}`)) {
  const start = performance.now();
  const [summary, output] = await test(root, target, path);
  const seconds = ((performance.now() - start) / 1000).toFixed(0).padStart(5);
  console.log(`${seconds} s  ${path}  ${summary}`);
  if (output === undefined) continue;
  failed++;
  console.log(output);
}
Deno.exit(failed > 0 ? 1 : 0);
