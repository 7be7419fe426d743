/**
 * Limits that Linux control groups set.
 *
 * A container often sees the cores and the memory of its host and may use a part of them. Version 2
 * keeps the limits in `cpu.max` and `memory.max`, version 1 in `cpu.cfs_quota_us` and
 * `memory.limit_in_bytes`. More threads than the quota allows wait for each other while the group is
 * throttled; a process that takes more memory is killed.
 */
import type { GroupLimits, ReadFile } from "./types.ts";

/** The limits of this process's groups, ancestors included: the least of each counts. */
export function groupLimits(read: ReadFile): GroupLimits {
  const memory = [...groupFolders("memory", read)].flatMap((folder) => memoryOf(folder, read));
  return {
    cores: Math.min(...groupFolders("cpu", read).map((folder) => quotaOf(folder, read))),
    memory: Math.min(...memory.map(({ limit }) => limit)),
    freeMemory: Math.min(...memory.map(({ limit, used }) => Math.max(0, limit - used))),
  };
}

/** Folders of the groups that this process is in for one controller. */
function* groupFolders(controller: "cpu" | "memory", read: ReadFile): Generator<string> {
  // Lines are `id:controllers:path`; version 2 has no controllers.
  for (const line of read("/proc/self/cgroup")?.split("\n") ?? []) {
    const [, controllers, ...rest] = line.split(":");
    if (controllers === undefined) continue;
    const isFirst = controllers.split(",").includes(controller);
    if (controllers !== "" && !isFirst) continue;
    const roots = isFirst
      ? [`/sys/fs/cgroup/${controllers}`, `/sys/fs/cgroup/${controller}`]
      : ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    const names = rest.join(":").split("/").filter((name) => name !== "");
    for (let depth = names.length; depth >= 0; depth--) {
      for (const root of roots) yield [root, ...names.slice(0, depth)].join("/");
    }
  }
}

/** Cores that the quota of one group amounts to; Infinity where there is none. */
function quotaOf(folder: string, read: ReadFile): number {
  const [quota, period] = read(`${folder}/cpu.max`)?.split(" ") ??
    [read(`${folder}/cpu.cfs_quota_us`), read(`${folder}/cpu.cfs_period_us`)];
  const limit = Number(quota) / Number(period);
  return limit > 0 ? limit : Infinity;
}

interface MemoryLimit {
  readonly limit: number;
  readonly used: number;
}

/** The memory limit of one group, if it has one. */
function memoryOf(folder: string, read: ReadFile): MemoryLimit[] {
  const second = read(`${folder}/memory.max`);
  const limit = Number(second ?? read(`${folder}/memory.limit_in_bytes`) ?? NaN);
  // Version 1 says "no limit" by the largest multiple of a page below 2^63.
  if (!(limit > 0 && limit < 2 ** 62)) return [];
  const usage = second === undefined ? "memory.usage_in_bytes" : "memory.current";
  const used = Number(read(`${folder}/${usage}`) ?? 0);
  return [{ limit, used: used - fileCache(read(`${folder}/memory.stat`)) }];
}

/** Bytes of files that a group caches; the kernel drops them before it kills a process. */
function fileCache(statistics: string | undefined): number {
  const inactive = /^(?:total_)?inactive_file (\d+)$/m.exec(statistics ?? "")?.[1];
  return Number(inactive ?? 0);
}
