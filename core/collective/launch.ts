/**
 * Finds out from environment variables which launcher started this process, and as which rank of how many;
 * and which part of independent work is its own.
 *
 * Launchers nest (mpirun starts its daemons with srun, srun starts torchrun), so the innermost is asked
 * first. Values are those measured with Open MPI 4.1, MPICH 4.0, Slurm 22.05 and torchrun of PyTorch 2.13;
 * those of Kubernetes follow its documentation.
 */
import { EnvironmentError } from "../base/errors.ts";

/** Launcher of the ranks. */
export type Launcher = "torchrun" | "Open MPI" | "PMI" | "Slurm";

/** The place of this process in a job. */
export interface Launch {
  readonly launcher: Launcher;
  readonly rank: number;
  readonly world: number;
  readonly localRank: number;
  readonly localWorld: number;
  /** Address at which rank 0 listens, for launchers without MPI. */
  readonly address?: { readonly host: string; readonly port: number };
}

/** Reads an environment variable. */
export type Env = (name: string) => string | undefined;

/** Variables of one launcher; the first of several names that is set counts. */
interface Row {
  readonly launcher: Launcher;
  /** Must be set besides rank and world. */
  readonly marker?: string;
  readonly rank: readonly string[];
  readonly world: readonly string[];
  readonly localRank: readonly string[];
  readonly localWorld: readonly string[];
}

const TORCHRUN = {
  launcher: "torchrun",
  rank: ["RANK"],
  world: ["WORLD_SIZE"],
  localRank: ["LOCAL_RANK"],
  localWorld: ["LOCAL_WORLD_SIZE"],
} as const satisfies Row;

const SLURM_STEP = "SLURM_STEP_ID"; // batch scripts have the other variables, too
const SLURM_RANK = ["SLURM_PROCID"];
const SLURM_WORLD = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];
const SLURM_LOCAL = ["SLURM_LOCALID"];
const SLURM_LOCAL_WORLD = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"];

/** Innermost first. */
const ROWS: readonly Row[] = [
  { ...TORCHRUN, marker: "TORCHELASTIC_RUN_ID" },
  {
    launcher: "Open MPI",
    rank: ["OMPI_COMM_WORLD_RANK"],
    world: ["OMPI_COMM_WORLD_SIZE"],
    localRank: ["OMPI_COMM_WORLD_LOCAL_RANK"],
    localWorld: ["OMPI_COMM_WORLD_LOCAL_SIZE"],
  },
  {
    launcher: "PMI",
    rank: ["PMI_RANK"],
    world: ["PMI_SIZE"],
    localRank: ["MPI_LOCALRANKID", ...SLURM_LOCAL],
    localWorld: ["MPI_LOCALNRANKS", ...SLURM_LOCAL_WORLD],
  },
  {
    launcher: "Open MPI",
    marker: SLURM_STEP,
    rank: ["PMIX_RANK"],
    world: SLURM_WORLD,
    localRank: SLURM_LOCAL,
    localWorld: SLURM_LOCAL_WORLD,
  },
  TORCHRUN,
  {
    launcher: "Slurm",
    marker: SLURM_STEP,
    rank: SLURM_RANK,
    world: SLURM_WORLD,
    localRank: SLURM_LOCAL,
    localWorld: SLURM_LOCAL_WORLD,
  },
];

/**
 * The launch that this process is part of; undefined when nothing launched it as one of several.
 * @throws {EnvironmentError} when variables contradict each other
 */
export function detectLaunch(env: Env): Launch | undefined {
  const found = ROWS.find((row) => isSet(row, env));
  if (found === undefined) return undefined;
  const launch = read(found, env);
  if (found.launcher === "Open MPI" || found.launcher === "PMI") requireNoOther(launch, env);
  return launch;
}

function isSet({ marker, rank, world }: Row, env: Env): boolean {
  return (marker === undefined || !!env(marker)) && first(rank, env) !== undefined &&
    first(world, env) !== undefined;
}

function first(names: readonly string[], env: Env): [name: string, text: string] | undefined {
  for (const name of names) {
    const text = env(name);
    if (text) return [name, text];
  }
  return undefined;
}

function read(row: Row, env: Env): Launch {
  const number = (names: readonly string[], fallback: number) => {
    const [name, text] = first(names, env) ?? [];
    if (name === undefined) return fallback;
    // Slurm writes "4(x2),3" for two machines with four tasks and one with three.
    const [, digits] = /^(\d+)(?:[(,][\d(x),]*)?$/.exec(text!) ?? [];
    if (digits !== undefined) return Number(digits);
    throw new EnvironmentError(`the launcher set ${name} to "${text}", expected a number`);
  };
  const rank = number(row.rank, 0), world = number(row.world, 1);
  const localRank = number(row.localRank, 0);
  if (rank >= world || localRank >= world) {
    throw new EnvironmentError(
      `the launcher's variables contradict each other: rank ${rank} of ${world}, ` +
        `${localRank} on this machine`,
      { hints: [`check ${row.rank[0]} and ${row.world[0]}`] },
    );
  }
  // Of an allocation, not of this step: it may be larger.
  const localWorld = Math.min(world, Math.max(localRank + 1, number(row.localWorld, 1)));
  const launch = { launcher: row.launcher, rank, world, localRank, localWorld };
  return row.launcher === "torchrun" ? { ...launch, ...addressOf(env) } : launch;
}

/** Rendezvous address: a port beside the one that the launcher's own agent may listen on. */
function addressOf(env: Env): Pick<Launch, "address"> {
  const host = env("MASTER_ADDR"), port = env("MASTER_PORT");
  if (!host || !port) return {};
  const own = env("PARSCALE_DIST_PORT");
  return { address: { host, port: own ? Number(own) : Number(port) + 1 } };
}

/** MPI in a pod or agent of another kind: nothing tells which of the two is meant. */
function requireNoOther({ launcher, rank, world }: Launch, env: Env): void {
  if (!isSet(TORCHRUN, env)) return;
  const other = read(TORCHRUN, env);
  if (other.rank === rank && other.world === world) return;
  throw new EnvironmentError(
    `launchers contradict each other: rank ${rank} of ${world} (${launcher}), ` +
      `rank ${other.rank} of ${other.world} (RANK and WORLD_SIZE)`,
    { hints: ["unset RANK and WORLD_SIZE where MPI is meant"] },
  );
}
