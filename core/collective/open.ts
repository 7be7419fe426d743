/** Opens the collective of a device; no library is loaded before it is asked for. */
import type { CudaDevice } from "../runtime/cuda/device.ts";
import type { Device } from "../runtime/device.ts";
import type { Collective, Transport } from "./collective.ts";
import type { Env, Launch } from "./environment.ts";
import { SOLO } from "./solo.ts";

/** As torchtitan sets them for runs that repeat. */
const DETERMINISTIC = [
  ["NCCL_NVLS_ENABLE", "0"],
  ["NCCL_COLLNET_ENABLE", "0"],
  ["NCCL_LAUNCH_MODE", "GROUP"],
] as const;

export interface CollectiveOptions {
  readonly env: Env;
  readonly launch: Launch | undefined;
  /** Longest wait for the other ranks in a step. */
  readonly timeoutMs: number;
  /** Whether NCCL may use no algorithm whose order of additions changes from run to run. */
  readonly deterministic?: boolean;
}

/**
 * Ends the ranks of a launch that this one has not joined: they may wait for it, and not every launcher
 * ends them when it is gone. Does nothing where there is no MPI.
 */
export async function abortLaunch(
  { env, launch }: Pick<CollectiveOptions, "env" | "launch">,
  code: number,
): Promise<void> {
  if (launch === undefined || launch.launcher === "torchrun") return;
  const { familiesFor, isInitialized, MpiGroup, openMpiLibrary } = await import("./mpi.ts");
  try {
    const library = openMpiLibrary(env, familiesFor(launch));
    if (!isInitialized(library)) new MpiGroup(library, launch).abort(code);
  } catch {
    // What the caller reports is why: no library, or that of another launcher.
  }
}

/**
 * Joins the ranks that were launched together; all of them call it.
 * @throws {EnvironmentError} when the library is missing or is not that of the launcher
 */
export async function openCollective(
  transport: Transport,
  device: Device,
  { env, launch, timeoutMs, deterministic }: CollectiveOptions,
): Promise<Collective> {
  if (transport === "solo") return SOLO;
  const openMpi = async () => {
    const { familiesFor, MpiGroup, openMpiLibrary } = await import("./mpi.ts");
    return new MpiGroup(openMpiLibrary(env, familiesFor(launch)), launch, { timeoutMs });
  };
  if (transport === "mpi") {
    const { HostCollective } = await import("./host_group.ts");
    return new HostCollective(await openMpi(), device);
  }
  const { openNccl } = await import("../runtime/cuda/driver/nccl.ts");
  const { agreeOnId, NcclCollective } = await import("./nccl.ts");
  if (deterministic) { for (const [name, value] of DETERMINISTIC) Deno.env.set(name, value); }
  const { symbols } = openNccl();
  const group = launch && launch.launcher !== "torchrun" ? await openMpi() : undefined;
  const { rank, world, localRank } = launch ?? SOLO;
  const id = await agreeOnId(symbols, launch, group);
  const place = { rank, world, localRank, timeoutMs };
  return new NcclCollective(symbols, device as CudaDevice, id, place, group);
}
