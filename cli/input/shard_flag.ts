/** The flag `--shard`, for tables: nothing is loaded for help. */
import type { FlagTable } from "../framework/table.ts";

/** For commands with independent rows. */
export const shardFlag = {
  type: "string",
  placeholder: "I/N|auto",
  summary: "Only part I of N, to be merged with the others",
  details:
    "Parts are counted from 1. auto: by the task of a Slurm array and by the rank under mpirun " +
    "or srun, and --out gets -I. In a Kubernetes indexed job: " +
    "--shard $((JOB_COMPLETION_INDEX+1))/8.",
} as const satisfies FlagTable[string];
