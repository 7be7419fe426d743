/** Threads and memory under the limits of control groups. */
import { assert, assertEquals } from "@std/assert";
import { memoryInfo, platformFor, usableCores } from "../../../../core/base/platform/mod.ts";

const linux = platformFor("linux");

/** Usable cores of a machine with sixteen, where only these files exist. */
function coresWith(files: Readonly<Record<string, string>>): number {
  return usableCores({ cores: 16, read: (path) => files[path], platform: linux });
}

/** Memory of a machine with 64 bytes, 48 of them free, where only these files exist. */
function memoryWith(files: Readonly<Record<string, string>>): [total: number, available: number] {
  const machine = { total: 64, available: 48, free: 40 };
  const info = memoryInfo({ machine, read: (path) => files[path], platform: linux });
  return [info.total, info.available];
}

Deno.test("a quota of version 2 in a container, whose group is its root", () => {
  const max = (text: string) =>
    coresWith({ "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": `${text}\n` });
  assertEquals(max("400000 100000"), 4);
  assertEquals(max("250000 100000"), 2);
  assertEquals(max("50000 100000"), 1);
  assertEquals(max("9900000 100000"), 16);
  assertEquals(max("max 100000"), 16);
  assertEquals(max(""), 16);
});

Deno.test("the least quota of a group and its ancestors counts", () => {
  const files = {
    "/proc/self/cgroup": "0::/user.slice/job.scope\n",
    "/sys/fs/cgroup/cpu.max": "max 100000\n",
    "/sys/fs/cgroup/user.slice/cpu.max": "300000 100000\n",
    "/sys/fs/cgroup/user.slice/job.scope/cpu.max": "800000 100000\n",
  };
  assertEquals(coresWith(files), 3);
});

Deno.test("a quota of version 1, of the controller for processor time alone", () => {
  const folder = "/sys/fs/cgroup/cpu,cpuacct/docker/ab";
  const files = {
    "/proc/self/cgroup": "7:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n1:name=systemd:/\n",
    [`${folder}/cpu.cfs_quota_us`]: "200000\n",
    [`${folder}/cpu.cfs_period_us`]: "100000\n",
    "/sys/fs/cgroup/memory/docker/ab/cpu.cfs_quota_us": "100000\n",
  };
  assertEquals(coresWith(files), 2);
  assertEquals(coresWith({ ...files, [`${folder}/cpu.cfs_quota_us`]: "-1\n" }), 16);
});

Deno.test("without control groups all cores and all memory count", () => {
  assertEquals(coresWith({}), 16);
  assertEquals(memoryWith({}), [64, 48]);
  assert(usableCores() >= 1 && usableCores() <= navigator.hardwareConcurrency);
  const { total, available } = memoryInfo();
  assert(available > 0 && available <= total && total <= Deno.systemMemoryInfo().total);
});

Deno.test("a memory limit of version 2 leaves what is not used; cached files do not count", () => {
  const folder = "/sys/fs/cgroup";
  const files = {
    "/proc/self/cgroup": "0::/\n",
    [`${folder}/memory.max`]: "32\n",
    [`${folder}/memory.current`]: "20\n",
    [`${folder}/memory.stat`]: "anon 9\nactive_file 5\ninactive_file 6\n",
  };
  assertEquals(memoryWith(files), [32, 18]);
  assertEquals(memoryWith({ ...files, [`${folder}/memory.max`]: "max\n" }), [64, 48]);
  assertEquals(memoryWith({ ...files, [`${folder}/memory.current`]: "90\n" }), [32, 0]);
});

Deno.test("a memory limit of version 1; its largest value is none", () => {
  const folder = "/sys/fs/cgroup/memory/docker/ab";
  const files = {
    "/proc/self/cgroup": "7:memory:/docker/ab\n",
    [`${folder}/memory.limit_in_bytes`]: "50\n",
    [`${folder}/memory.usage_in_bytes`]: "30\n",
    [`${folder}/memory.stat`]: "inactive_file 1\ntotal_inactive_file 4\n",
  };
  assertEquals(memoryWith(files), [50, 21]);
  const none = { ...files, [`${folder}/memory.limit_in_bytes`]: "9223372036854771712\n" };
  assertEquals(memoryWith(none), [64, 48]);
});
