/** Connects the ranks of a launch; no library is loaded before it is asked for. */
import type { CudaDevice } from "../runtime/cuda/device.ts";
import type { Device, DeviceTensor } from "../runtime/device.ts";
import type { Env, Launch } from "./launch.ts";
import { onDevice, type ProcessGroup } from "./process_group.ts";

/** As torchtitan sets them for runs that repeat. */
const DETERMINISTIC = [
  ["NCCL_NVLS_ENABLE", "0"],
  ["NCCL_COLLNET_ENABLE", "0"],
  ["NCCL_LAUNCH_MODE", "GROUP"],
] as const;

export interface GroupOptions {
  readonly env: Env;
  readonly launch: Launch | undefined;
  /** Longest wait for the other ranks in a step. */
  readonly timeoutMs: number;
  /** True if NCCL may use no algorithm whose order of additions changes from run to run. */
  readonly deterministic: boolean;
}

/**
 * Ends the ranks of a launch that this one has not joined: they may wait for it, and not every launcher
 * ends them when it is gone. Does nothing where there is no MPI.
 */
export async function abortLaunch(
  { env, launch }: Pick<GroupOptions, "env" | "launch">,
  code: number,
): Promise<void> {
  if (launch === undefined || launch.launcher === "torchrun") return;
  const { isInitialized, MpiGroup, openMpiLibrary } = await import("./mpi.ts");
  try {
    const library = openMpiLibrary(env, launch);
    if (!isInitialized(library)) new MpiGroup(library, launch).abort(code);
  } catch {
    // What the caller reports is why: no library, or that of another launcher.
  }
}

/**
 * Joins the ranks that were launched together; all of them call it.
 * @throws {EnvironmentError} when the library is missing or is not that of the launcher
 */
export async function openGroup(
  transport: "mpi" | "nccl",
  device: Device,
  { env, launch, timeoutMs, deterministic }: GroupOptions,
): Promise<ProcessGroup<DeviceTensor>> {
  const openMpi = async () => {
    const { MpiGroup, openMpiLibrary } = await import("./mpi.ts");
    return new MpiGroup(openMpiLibrary(env, launch), launch, { timeoutMs });
  };
  if (transport === "mpi") return onDevice(await openMpi(), device);
  const { openNccl } = await import("./nccl_library.ts");
  const { agreeOnId, NcclGroup } = await import("./nccl.ts");
  if (deterministic) { for (const [name, value] of DETERMINISTIC) Deno.env.set(name, value); }
  const cuda = device as CudaDevice;
  const { symbols } = openNccl({ driverVersion: cuda.work().driver.version });
  const hosts = launch && launch.launcher !== "torchrun" ? await openMpi() : undefined;
  const { rank, world } = launch ?? { rank: 0, world: 1 };
  const id = await agreeOnId(symbols, launch, hosts);
  return new NcclGroup(symbols, cuda, id, { rank, world, timeoutMs }, hosts);
}
