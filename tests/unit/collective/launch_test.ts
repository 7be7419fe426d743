/** The launcher that started a process, by environment variables. */
import { assertEquals, assertThrows } from "@std/assert";
import { EnvironmentError } from "../../../core/base/errors.ts";
import { detectLaunch } from "../../../core/collective/launch.ts";

const detect = (variables: Readonly<Record<string, string | undefined>>) =>
  detectLaunch((name) => variables[name]);

/** Variables from `NAME=value` words. */
const variablesOf = (text: string): Record<string, string> =>
  Object.fromEntries(text.split(" ").map((word) => word.split("=")));

const OPEN_MPI = variablesOf(
  "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 " +
    "OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_RANK=5",
);
const MPICH = variablesOf("PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2");
const STEP = variablesOf(
  "SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_NTASKS_PER_NODE=2",
);
const TORCHRUN = variablesOf(
  "TORCHELASTIC_RUN_ID=none RANK=9 WORLD_SIZE=16 LOCAL_RANK=1 LOCAL_WORLD_SIZE=8 " +
    "MASTER_ADDR=node-0 MASTER_PORT=29500",
);
const POD = variablesOf("RANK=1 WORLD_SIZE=2 MASTER_ADDR=job-master-0 MASTER_PORT=23456");

const place = (rank: number, world: number, localRank: number, localWorld: number) => ({
  rank,
  world,
  localRank,
  localWorld,
});

Deno.test("every launcher is recognised by its variables", () => {
  const { SLURM_STEP_ID: _, ...batch } = STEP;
  const small = { ...STEP, SLURM_PROCID: "1", SLURM_STEP_NUM_TASKS: "2", SLURM_LOCALID: "1" };
  const slurm = { launcher: "Slurm", ...place(2, 4, 0, 2) };
  const cases = [
    // A shell, a batch script and half a launch are not a launch.
    ...[{}, batch, { RANK: "0" }, { WORLD_SIZE: "4" }, { PMIX_RANK: "0" }]
      .map((variables) => [variables, undefined] as const),
    [OPEN_MPI, { launcher: "Open MPI", ...place(5, 8, 1, 4) }],
    [MPICH, { launcher: "PMI", ...place(3, 4, 1, 2) }],
    [{ ...STEP, PMI_RANK: "2", PMI_SIZE: "4" }, { launcher: "PMI", ...place(2, 4, 0, 2) }],
    [{ ...STEP, PMIX_RANK: "2" }, { launcher: "Open MPI", ...place(2, 4, 0, 2) }],
    [STEP, slurm],
    // A step smaller than its allocation has its own size.
    [{ ...small, SLURM_NTASKS_PER_NODE: "8" }, { launcher: "Slurm", ...place(1, 2, 1, 2) }],
    [{ ...STEP, SLURM_STEP_TASKS_PER_NODE: "3,1" }, { ...slurm, localWorld: 3 }],
    [{ ...STEP, SLURM_STEP_TASKS_PER_NODE: "2(x2)" }, slurm],
    [TORCHRUN, {
      launcher: "torchrun",
      ...place(9, 16, 1, 8),
      address: { host: "node-0", port: 29501 },
    }],
    [POD, {
      launcher: "torchrun",
      ...place(1, 2, 0, 1),
      address: { host: "job-master-0", port: 23457 },
    }],
  ] as const;
  for (const [variables, expected] of cases) {
    assertEquals(detect(variables), expected && { ...expected }, JSON.stringify(variables));
  }
});

Deno.test("the innermost of nested launchers counts", () => {
  // mpirun starts its daemons with srun, one per machine; srun starts torchrun's agents.
  const daemons = { ...STEP, SLURM_PROCID: "0", SLURM_NTASKS: "2", SLURM_STEP_NUM_TASKS: "2" };
  assertEquals(detect({ ...daemons, ...OPEN_MPI })!.world, 8);
  assertEquals(detect({ ...daemons, PMI_RANK: "0", PMI_SIZE: "2", ...OPEN_MPI })!.world, 8);
  assertEquals(detect({ ...daemons, ...MPICH })!.world, 4);
  assertEquals(detect({ ...daemons, ...TORCHRUN })!.world, 16);
  assertEquals(detect({ ...OPEN_MPI, ...TORCHRUN })!.launcher, "torchrun");
});

Deno.test("launchers that contradict each other are refused", () => {
  const wrong = [
    [{ ...OPEN_MPI, ...POD }, "launchers contradict each other: rank 5 of 8"],
    [{ ...MPICH, ...POD }, "rank 1 of 2 (RANK and WORLD_SIZE)"],
    [{ ...OPEN_MPI, OMPI_COMM_WORLD_RANK: "8" }, "rank 8 of 8"],
    [{ ...MPICH, PMI_SIZE: "four" }, 'set PMI_SIZE to "four"'],
  ] as const;
  for (const [variables, message] of wrong) {
    assertThrows(() => detect(variables), EnvironmentError, message);
  }
  const same = { ...OPEN_MPI, RANK: "5", WORLD_SIZE: "8" };
  assertEquals(detect(same)!.launcher, "Open MPI");
});

Deno.test("PARSCALE_DIST_PORT names the port where ranks meet", () => {
  assertEquals(detect({ ...TORCHRUN, PARSCALE_DIST_PORT: "4000" })!.address!.port, 4000);
});
