/** Scripts that see a small file system of their own. */
import { runShell } from "./run.ts";

/** Runs a script of bash that may mount. */
export function runMounting(script: string, cwd?: string) {
  const program = "unshare --map-root-user --mount bash -c";
  const quoted = `'${script.replaceAll("'", "'\\''")}'`;
  return runShell(`export -f parscale; ${program} ${quoted}`, cwd === undefined ? {} : { cwd });
}

/** True if a file system can be mounted: in a container it may not. */
export const canMount: boolean = (await runMounting("mount -t tmpfs none /mnt")).code === 0;
