/** Default threads under quotas of control groups. */
import { assert, assertEquals } from "@std/assert";
import { usableCores } from "../../../core/runtime/threads.ts";

/** Usable cores of a machine with sixteen, where only these files exist. */
function coresWith(files: Readonly<Record<string, string>>): number {
  return usableCores({ cores: 16, read: (path) => files[path] });
}

if (Deno.build.os === "linux") {
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
      "/sys/fs/cgroup/memory/docker/ab/cpu.cfs_period_us": "100000\n",
    };
    assertEquals(coresWith(files), 2);
    assertEquals(coresWith({ ...files, [`${folder}/cpu.cfs_quota_us`]: "-1\n" }), 16);
  });

  Deno.test("without control groups all cores count, and here at least one", () => {
    assertEquals(coresWith({}), 16);
    assert(usableCores() >= 1 && usableCores() <= navigator.hardwareConcurrency);
  });
}
