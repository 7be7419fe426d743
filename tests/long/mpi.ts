/** MPI launchers of this machine, for tests that start several ranks of the program. */
import { assert, assertEquals } from "@std/assert";
import { environment, programLine, runCommand, type RunResult } from "../cli/run.ts";
import { ROWS, withWorkplace, type Workplace } from "../cli/train_testing.ts";
import { HANG_MS } from "../hang.ts";

const LINE = `--model p2 ${ROWS} --micro-batch 2 --steps 100000 --save-every 5 --keep 2 --out run`;

const delay = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** A kind of MPI and its launcher. */
export interface Mpi {
  readonly name: "Open MPI" | "MPICH";
  /** Program that starts ranks; undefined where it is not installed. */
  readonly launcher: string | undefined;
  readonly options: readonly string[];
  /** Variable that tells a process its rank. */
  readonly rankVariable: string;
}

function find(names: readonly string[], words: RegExp): string | undefined {
  return names.find((name) => {
    try {
      const { stdout, stderr } = new Deno.Command(name, { args: ["--version"] }).outputSync();
      const text = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
      return words.test(text);
    } catch {
      return false; // no such program
    }
  });
}

/** Both kinds, installed or not. */
export const MPIS: readonly Mpi[] = [
  {
    name: "Open MPI",
    launcher: find(["mpirun.openmpi", "mpirun"], /Open MPI|OpenRTE/),
    options: ["--oversubscribe", "--bind-to", "none"],
    rankVariable: "OMPI_COMM_WORLD_RANK",
  },
  {
    name: "MPICH",
    launcher: find(["mpirun.mpich", "mpirun"], /HYDRA/),
    options: [],
    rankVariable: "PMI_RANK",
  },
];

/** Variables that Open MPI wants of root. */
export const AS_ROOT = { OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1" };

/** Defines a test of a kind of MPI in a place of its own, which is skipped where there is no launcher. */
export function testRanks(
  { name: kind, launcher }: Mpi,
  name: string,
  fn: (place: Workplace) => Promise<void>,
  { ignore = false, timeout = 0 } = {},
): void {
  const missing = launcher === undefined ? ` (skipped: no mpirun of ${kind})` : "";
  Deno.test({
    name: `${kind}: ${name}${missing}`,
    ignore: ignore || launcher === undefined,
    ...timeout && { timeout },
    fn: () => withWorkplace(fn),
  });
}

/** The words that start `world` ranks of a command line of the program. */
export function mpiLine({ launcher, options }: Mpi, world: number, args: readonly string[]) {
  return [launcher!, ...options, "-n", String(world), ...programLine(args)];
}

/** Runs `parscale train` as several ranks to its end. */
export function trainRanks(
  mpi: Mpi,
  world: number,
  place: Workplace,
  line: string,
): Promise<RunResult> {
  const env = { ...place.env, ...AS_ROOT };
  return runCommand(mpiLine(mpi, world, place.args(line)), { cwd: place.cwd, env });
}

/** Starts `parscale train` as several ranks without waiting for it. */
export function startRanks(
  mpi: Mpi,
  world: number,
  place: Workplace,
  line: string,
): Deno.ChildProcess {
  const [program, ...args] = mpiLine(mpi, world, place.args(line));
  return new Deno.Command(program!, {
    args,
    cwd: place.cwd,
    env: environment({ ...place.env, ...AS_ROOT }),
    clearEnv: true,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

/** Processes of the ranks that work in a place, by rank. */
export function ranksIn({ rankVariable }: Mpi, place: Workplace): Map<number, number> {
  const found = new Map<number, number>();
  for (const { name } of Deno.readDirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const variables = Deno.readTextFileSync(`/proc/${name}/environ`).split("\0");
      const rank = variables.find((each) => each.startsWith(`${rankVariable}=`))?.split("=")[1];
      const isHere = variables.includes(`PARSCALE_CACHE=${place.cwd}/cache`);
      if (rank !== undefined && isHere) found.set(Number(rank), Number(name));
    } catch {
      // it has ended meanwhile
    }
  }
  return found;
}

/** Starts two ranks of a run without an end, and waits until they have saved. */
export async function startAndSave(
  mpi: Mpi,
  place: Workplace,
  more = "",
): Promise<Deno.ChildProcess> {
  const child = startRanks(mpi, 2, place, `${LINE}${more} -q`);
  for (let i = 0; i < HANG_MS / 100 && !place.exists("run/last"); i++) await delay(100);
  assert(place.exists("run/last"), "the run never saved");
  return child;
}

/** Waits until no rank is left. */
export async function assertAllEnd(mpi: Mpi, place: Workplace): Promise<void> {
  for (let i = 0; i < HANG_MS / 100 && ranksIn(mpi, place).size > 0; i++) await delay(100);
  assertEquals(ranksIn(mpi, place).size, 0, "a rank is still alive");
}
