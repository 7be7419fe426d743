/**
 * Threads to compute with where none are asked for: the cores that this process may use.
 *
 * A container often sees all cores of its host and may use the time of a few: a quota of its control
 * group, which version 2 keeps in `cpu.max` and version 1 in `cpu.cfs_quota_us`. More threads than that
 * wait for each other while the group is throttled.
 */

/** Contents of a file; undefined when it cannot be read. */
export type ReadFile = (path: string) => string | undefined;

/** Cores of this machine, or fewer where a quota of processor time says so; at least one. */
export function usableCores(
  { cores = navigator.hardwareConcurrency, read = readIfAny }: {
    cores?: number;
    read?: ReadFile;
  } = {},
): number {
  const quotas = Deno.build.os === "linux" ? [...groupFolders(read)] : [];
  const limits = quotas.map((folder) => quotaOf(folder, read)).filter((limit) => limit > 0);
  return Math.max(1, Math.floor(Math.min(cores, ...limits)));
}

function readIfAny(path: string): string | undefined {
  try {
    return Deno.readTextFileSync(path);
  } catch {
    return undefined;
  }
}

/** Folders of the control groups that this process is in, ancestors included: any may have a quota. */
function* groupFolders(read: ReadFile): Generator<string> {
  // Lines are `id:controllers:path`; version 2 has no controllers.
  for (const line of read("/proc/self/cgroup")?.split("\n") ?? []) {
    const [, controllers, ...rest] = line.split(":");
    if (controllers === undefined) continue;
    const isFirst = controllers.split(",").includes("cpu");
    if (controllers !== "" && !isFirst) continue;
    const roots = isFirst
      ? [`/sys/fs/cgroup/${controllers}`, "/sys/fs/cgroup/cpu"]
      : ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    const names = rest.join(":").split("/").filter((name) => name !== "");
    for (let depth = names.length; depth >= 0; depth--) {
      for (const root of roots) yield [root, ...names.slice(0, depth)].join("/");
    }
  }
}

/** Cores that the quota of one group amounts to; 0 where there is none. */
function quotaOf(folder: string, read: ReadFile): number {
  const [quota, period] = read(`${folder}/cpu.max`)?.split(" ") ??
    [read(`${folder}/cpu.cfs_quota_us`), read(`${folder}/cpu.cfs_period_us`)];
  const limit = Number(quota) / Number(period);
  return Number.isFinite(limit) ? limit : 0;
}
