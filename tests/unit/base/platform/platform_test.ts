/** Differences between operating systems: the logic of each, on any of them. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import {
  homeFolder,
  isAlive,
  memoryInfo,
  PLATFORM,
  platformFor,
  withSlashes,
} from "../../../../core/base/platform/mod.ts";
import { rename } from "../../../../core/storage/rename.ts";
import { cacheFolder } from "../../../../core/base/cache_folder.ts";
import { EnvironmentError } from "../../../../core/base/errors.ts";
import { withScratch } from "../../../scratch.ts";

const [linux, macos, windows] = ["linux", "darwin", "windows"].map(platformFor) as [
  typeof PLATFORM,
  typeof PLATFORM,
  typeof PLATFORM,
];

Deno.test("each system has its own implementation", () => {
  assertEquals([linux.name, macos.name, windows.name], ["linux", "macos", "windows"]);
  assertEquals(PLATFORM, platformFor(Deno.build.os));
});

Deno.test("cache folders follow the rules of each system", () => {
  const from = (env: Record<string, string>) => (name: string) => env[name];
  const home = from({ HOME: "/home/u", USERPROFILE: "C:\\Users\\u" });
  assertEquals(cacheFolder(home, linux), "/home/u/.cache/parscale");
  assertEquals(cacheFolder(home, macos), "/home/u/Library/Caches/parscale");
  assertEquals(cacheFolder(home, windows), "C:\\Users\\u\\AppData\\Local/parscale");
  const local = from({ LOCALAPPDATA: "D:\\Local", USERPROFILE: "C:\\Users\\u" });
  assertEquals(cacheFolder(local, windows), "D:\\Local/parscale");
  for (const platform of [linux, macos, windows]) {
    const named = from({ PARSCALE_CACHE: "p", XDG_CACHE_HOME: "/x" });
    assertEquals(cacheFolder(named, platform), "p");
    assertEquals(cacheFolder(from({ XDG_CACHE_HOME: "/x" }), platform), "/x/parscale");
    const expanded = from({ PARSCALE_CACHE: "~/$A", A: "a", USERPROFILE: "/u", HOME: "/u/" });
    assertEquals(cacheFolder(expanded, platform), "/u/a");
    // The XDG specification has relative paths ignored.
    const relative = from({ XDG_CACHE_HOME: "x", HOME: "/h" });
    assertEquals(platform.caches(relative), platform.caches(from({ HOME: "/h" })));
    assertEquals(platform.caches(from({})), undefined);
    assertEquals(platform.home(from({ HOME: "h" })), "h");
    if (platform !== windows) assertEquals(platform.home(from({ HOME: "/dev/null" })), undefined);
  }
  assertEquals(windows.temporary(from({ TEMP: "C:\\T" })), "C:\\T");
  assertEquals(windows.temporary(from({})), "C:\\Windows\\Temp");
  assertEquals(macos.temporary(from({ TMPDIR: "/var/folders/t" })), "/var/folders/t");
});

Deno.test("without a home the cache folder is private, and one that is not is refused", {
  ignore: Deno.uid() === null,
}, () =>
  withScratch((temporary) => {
    const find = () => cacheFolder((name) => name === "TMPDIR" ? temporary : undefined, linux);
    const folder = find();
    assertEquals(folder, `${temporary}/parscale-${Deno.uid()}`);
    assertEquals(Deno.statSync(folder).mode! & 0o777, 0o700);
    Deno.chmodSync(folder, 0o777);
    assertThrows(find, EnvironmentError, "other users can write to it");
    return Promise.resolve();
  }));

Deno.test("the home of this process is the one in its environment", () => {
  const expected = Deno.env.get(PLATFORM.name === "windows" ? "USERPROFILE" : "HOME");
  assertEquals(homeFolder(), expected || undefined);
});

Deno.test("every ending signal of this system can be listened to", () => {
  for (const signal of PLATFORM.endingSignals) {
    const listener = () => {};
    Deno.addSignalListener(signal, listener);
    Deno.removeSignalListener(signal, listener);
  }
  assert(PLATFORM.endingSignals.includes("SIGINT"));
});

Deno.test("memory in use and ignored signals are read from the status of the process", () => {
  const read = (text: string) => (path: string) => path === "/proc/self/status" ? text : undefined;
  assertEquals(linux.peakMemory(read("VmPeak:\t  9 kB\nVmHWM:\t  123 kB\n")), 123 * 1024);
  assertEquals(linux.peakMemory(read("")), null);
  assertEquals(linux.ignoresHangup(read("SigIgn:\t0000000000001001\n")), true);
  assertEquals(linux.ignoresHangup(read("SigIgn:\t0000000000001000\n")), false);
  assertEquals(linux.ignoresHangup(read("")), false);
});

Deno.test("free memory stands in where the system names no available memory", () => {
  const machine = { total: 8, available: 0, free: 5 };
  assertEquals(memoryInfo({ machine, platform: windows }), { total: 8, available: 5 });
});

Deno.test("this process is alive, and one that has ended is not", async () => {
  assert(isAlive(Deno.pid));
  const child = new Deno.Command(Deno.execPath(), { args: ["--version"], stdout: "null" }).spawn();
  await child.status;
  assert(!isAlive(child.pid));
});

Deno.test("a rename that is refused for a moment is tried again on Windows alone", () => {
  const host = (platform: typeof PLATFORM, failures: number, code: string) => {
    const waits: number[] = [];
    let calls = 0;
    return {
      platform,
      waits,
      rename: () => {
        if (calls++ < failures) throw Object.assign(new Error(code), { code });
      },
      wait: (milliseconds: number) => void waits.push(milliseconds),
    };
  };
  const busy = host(windows, 3, "EPERM");
  rename("a", "b", busy);
  assertEquals(busy.waits, [10, 20, 40]);
  const always = host(windows, Infinity, "EACCES");
  assertThrows(() => rename("a", "b", always), Error, "EACCES");
  assertEquals(always.waits.length, 7);
  const others = [host(windows, 1, "ENOENT"), host(linux, 1, "EPERM"), host(macos, 1, "EBUSY")];
  for (const other of others) {
    assertThrows(() => rename("a", "b", other), Error);
    assertEquals(other.waits, []);
  }
});

Deno.test("a rename replaces a file, and says when a folder of the name is there", () =>
  withScratch(async (folder) => {
    const path = (name: string) => `${folder}/${name}`;
    await Deno.writeTextFile(path("old"), "old");
    await Deno.writeTextFile(path("new"), "new");
    rename(path("new"), path("old"));
    assertEquals(await Deno.readTextFile(path("old")), "new");
    for (const name of ["first", "second"]) {
      await Deno.mkdir(path(`${name}/content`), { recursive: true });
    }
    const error = assertThrows(() => rename(path("first"), path("second")));
    assert(PLATFORM.isTaken(error), `${error}`);
    assert(!PLATFORM.isTaken(assertThrows(() => rename(path("none"), path("x")))));
  }));

Deno.test("backslashes part names on Windows and belong to a name elsewhere", () => {
  assertEquals(withSlashes("C:\\data\\a/*.jsonl", windows), "C:/data/a/*.jsonl");
  assertEquals(withSlashes("data\\a", linux), "data\\a");
});
