/** The processes of a job: which rank runs where, and the files by which ranks of other machines are seen. */
import { join } from "node:path";
import { machineIdentity } from "../base/platform/mod.ts";
import { gatherNumbers, hashNumber } from "./agreement.ts";
import type { ProcessGroup } from "./process_group.ts";

/** Letters of a host name that travel. */
const NAME_LENGTH = 64;

/** The process of a rank. */
export interface Peer {
  readonly rank: number;
  readonly pid: number;
  /** Name of its machine. */
  readonly host: string;
  /** Whether it runs on the machine of the rank that asks, so that its process can be looked at. */
  readonly isLocal: boolean;
}

/** The processes of all ranks; every rank calls it. */
export async function gatherPeers(
  group: Pick<ProcessGroup<unknown>, "rank" | "world" | "sum">,
): Promise<Peer[]> {
  const letters = Array.from(Deno.hostname().slice(0, NAME_LENGTH), (c) => c.codePointAt(0)!);
  const name = Array.from({ length: NAME_LENGTH }, (_, i) => letters[i] ?? 0);
  const own = hashNumber([machineIdentity()]);
  const all = await gatherNumbers(group, [Deno.pid, own, ...name]);
  return all.map(([pid, machine, ...codes], rank) => ({
    rank,
    pid: pid!,
    host: String.fromCodePoint(...codes.filter((code) => code > 0)),
    isLocal: machine === own,
  }));
}

/** File in the run folder by which a rank is seen from other machines. */
export function rankFile(folder: string, rank: number): string {
  return join(folder, `.rank-${rank}`);
}

/** Records that this rank fails by itself and has reported why, so that others do not report it. */
export function markFailed(folder: string, rank: number): void {
  writeIfPossible(rankFile(folder, rank), `${Deno.pid} failed\n`);
}

/** Whether a rank recorded that. */
export function hasFailed(folder: string, { rank, pid }: Pick<Peer, "rank" | "pid">): boolean {
  return readIfAny(rankFile(folder, rank)) === `${pid} failed\n`;
}

/** Writes a heartbeat, which differs from the one before. */
export function writeHeartbeat(folder: string, rank: number, count: number): void {
  writeIfPossible(rankFile(folder, rank), `${Deno.pid} ${count}\n`);
}

/** The newest heartbeat of a rank; undefined where there is none. */
export function readHeartbeat(folder: string, rank: number): string | undefined {
  return readIfAny(rankFile(folder, rank));
}

/** Removes what a rank wrote there. */
export function removeRankFile(folder: string, rank: number): void {
  try {
    Deno.removeSync(rankFile(folder, rank));
  } catch {
    // There was none.
  }
}

function writeIfPossible(path: string, text: string): void {
  try {
    Deno.writeTextFileSync(path, text);
  } catch {
    // The folder is not there yet, or full: training goes on without it.
  }
}

function readIfAny(path: string): string | undefined {
  try {
    return Deno.readTextFileSync(path);
  } catch {
    return undefined;
  }
}
