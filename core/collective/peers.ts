/**
 * The processes of a job: which rank runs where, and which have stopped answering while this one waits.
 *
 * A process on the same machine is looked at. One on another machine is seen by a file in the run folder
 * that changes every few seconds; contents are compared, since clocks of machines differ. A process that
 * has ended is reported at once; one that is stopped or silent may continue, and is named at the time limit.
 */
import { join } from "node:path";
import { machineIdentity, type ProcessState, processState } from "../base/platform/mod.ts";
import { gatherNumbers, hashNumber } from "./agreement.ts";
import { noAnswer, type NumberGroup } from "./process_group.ts";

/** Waits shorter than this are not looked into. */
const PATIENCE_MS = 500;

/** Time between heartbeats, and after how long without a new one a rank counts as silent. */
export const HEARTBEAT_MS = 5000;
const SILENT_MS = 3 * HEARTBEAT_MS;

/** Ranks named in a message. */
const MOST_NAMED = 3;

/** Letters of a host name that travel. */
const NAME_LENGTH = 64;

/** The process of a rank. */
export interface Peer {
  readonly rank: number;
  readonly pid: number;
  /** Name of its machine. */
  readonly host: string;
  /** True if it runs on the machine of the rank that asks, so that its process can be looked at. */
  readonly isLocal: boolean;
}

/** The processes of all ranks; every rank calls it. */
export async function gatherPeers(ranks: NumberGroup): Promise<Peer[]> {
  const letters = Array.from(Deno.hostname().slice(0, NAME_LENGTH), (c) => c.codePointAt(0)!);
  const name = Array.from({ length: NAME_LENGTH }, (_, i) => letters[i] ?? 0);
  const own = hashNumber([machineIdentity()]);
  const all = await gatherNumbers(ranks, [Deno.pid, own, ...name]);
  return all.map(([pid, machine, ...codes], rank) => ({
    rank,
    pid: pid!,
    host: String.fromCodePoint(...codes.filter((code) => code > 0)),
    isLocal: machine === own,
  }));
}

/** Records that this rank fails by itself and has reported why, so that others do not report it. */
export function markFailed(folder: string, rank: number): void {
  writeRankFile(folder, rank, `${Deno.pid} failed\n`);
}

/** Returns whether a rank recorded that. */
export function hasFailed(folder: string, { rank, pid }: Pick<Peer, "rank" | "pid">): boolean {
  return readRankFile(folder, rank) === `${pid} failed\n`;
}

/** Writes a heartbeat, which differs from the one before. */
export function writeHeartbeat(folder: string, rank: number, count: number): void {
  writeRankFile(folder, rank, `${Deno.pid} ${count}\n`);
}

/** Removes what a rank wrote there. */
export function removeRankFile(folder: string, rank: number): void {
  try {
    Deno.removeSync(rankFile(folder, rank));
  } catch {
    // There was none.
  }
}

/** File in the run folder by which a rank is seen from other machines. */
function rankFile(folder: string, rank: number): string {
  return join(folder, `.rank-${rank}`);
}

function writeRankFile(folder: string, rank: number, text: string): void {
  try {
    Deno.writeTextFileSync(rankFile(folder, rank), text);
  } catch {
    // The folder is not there yet, or full: training continues without it.
  }
}

function readRankFile(folder: string, rank: number): string | undefined {
  try {
    return Deno.readTextFileSync(rankFile(folder, rank));
  } catch {
    return undefined;
  }
}

export interface PeerWatchOptions {
  readonly rank: number;
  /** All ranks, this one included. */
  readonly peers: readonly Peer[];
  /** Longest wait for other ranks in a step. */
  readonly timeoutMs: number;
  /** Run folder, which all machines see. */
  readonly folder: string;
  readonly stateOf?: (pid: number) => ProcessState;
}

/** Why this rank need not wait any longer. */
export interface LostRanks {
  readonly message: string;
  /** True if this is the lowest rank that can report it; others give it a moment to do so. */
  readonly reportsFirst: boolean;
}

interface Suspect {
  readonly peer: Peer;
  readonly why: string;
  readonly isGone: boolean;
}

export class PeerWatch {
  readonly #options: Required<PeerWatchOptions>;
  /** The newest heartbeat of ranks on other machines, and when it was first seen. */
  readonly #heartbeats = new Map<number, { readonly text: string; readonly since: number }>();
  /** Time reported as passed, without that in which the whole job was suspended. */
  #now = 0;
  #waited = 0;
  #looked = -Infinity;
  #lastBeat = -Infinity;
  #count = 0;

  constructor(options: PeerWatchOptions) {
    this.#options = { stateOf: processState, ...options };
  }

  /** True if some rank runs on another machine, so that heartbeats are needed. */
  get needsHeartbeats(): boolean {
    return this.#options.peers.some(({ isLocal }) => !isLocal);
  }

  /**
   * Records that time has passed in which this rank computed, began another wait, or continued the
   * same one; says why it should give up, if it should.
   */
  pass(ms: number, wait: "none" | "new" | "same", isLimited: boolean): LostRanks | undefined {
    this.#now += ms;
    if (this.needsHeartbeats && this.#now - this.#lastBeat >= HEARTBEAT_MS) this.#beat();
    this.#waited = wait === "same" ? this.#waited + ms : 0;
    if (this.#waited < PATIENCE_MS) return undefined;
    const suspects = this.#suspects();
    const gone = suspects.filter(({ isGone }) => isGone);
    const { folder, rank, peers, timeoutMs } = this.#options;
    if (gone.some(({ peer }) => hasFailed(folder, peer))) return undefined; // the launcher ends the job
    if (gone.length > 0) return this.#report(gone);
    if (!isLimited || this.#waited < timeoutMs) return undefined;
    if (suspects.length > 0) return this.#report(suspects);
    const { message } = noAnswer(rank, peers.length, this.#waited);
    return { message, reportsFirst: rank === 0 };
  }

  #suspects(): Suspect[] {
    const { peers, rank, stateOf } = this.#options;
    this.#readHeartbeats();
    return peers.flatMap((peer): Suspect[] => {
      if (peer.rank === rank) return [];
      if (peer.isLocal) {
        const state = stateOf(peer.pid);
        if (state === "running") return [];
        const isGone = state === "gone";
        return [{ peer, isGone, why: isGone ? "it has ended" : "it is stopped by a signal" }];
      }
      const heartbeat = this.#heartbeats.get(peer.rank);
      const silent = heartbeat === undefined ? 0 : this.#now - heartbeat.since;
      if (silent < SILENT_MS) return [];
      return [{ peer, isGone: false, why: `no heartbeat for ${Math.round(silent / 1000)} s` }];
    });
  }

  #report(suspects: readonly Suspect[]): LostRanks {
    const { rank } = this.#options;
    const named = suspects.slice(0, MOST_NAMED).map(({ peer, why }) =>
      `rank ${peer.rank} (pid ${peer.pid} on host ${peer.host}) stopped answering: ${why}`
    );
    const more = suspects.length - named.length;
    const below = suspects.filter(({ peer }) => peer.rank < rank).length;
    return {
      message: named.join("; ") + (more > 0 ? `; and ${more} more` : ""),
      reportsFirst: below === rank,
    };
  }

  #beat(): void {
    writeHeartbeat(this.#options.folder, this.#options.rank, this.#count++);
    this.#lastBeat = this.#now;
  }

  #readHeartbeats(): void {
    if (this.#now - this.#looked < HEARTBEAT_MS) return;
    this.#looked = this.#now;
    for (const { rank, isLocal } of this.#options.peers) {
      if (isLocal) continue;
      const text = readRankFile(this.#options.folder, rank);
      if (text === undefined || this.#heartbeats.get(rank)?.text === text) continue;
      this.#heartbeats.set(rank, { text, since: this.#now });
    }
  }
}
