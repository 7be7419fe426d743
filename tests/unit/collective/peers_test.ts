/** Detection of ranks that stopped answering, on this machine and on others. */
import { assert, assertEquals } from "@std/assert";
import type { ProcessState } from "../../../core/base/platform/mod.ts";
import {
  gatherPeers,
  hasFailed,
  HEARTBEAT_MS,
  markFailed,
  type Peer,
  PeerWatch,
  removeRankFile,
  writeHeartbeat,
} from "../../../core/collective/peers.ts";
import { withScratch } from "../../scratch.ts";
import { memoryGroups } from "./memory_group.ts";

/** Ranks on this machine, but those in `remote`. */
function peersOf(count: number, remote: readonly number[] = []): Peer[] {
  return Array.from({ length: count }, (_, rank) => ({
    rank,
    pid: 100 + rank,
    host: `node${rank}`,
    isLocal: !remote.includes(rank),
  }));
}

const withFolder = (use: (folder: string) => void) =>
  withScratch((folder) => Promise.resolve(use(folder)));

function watchOf(
  { rank = 0, count = 2, states = {}, timeoutMs = 10_000, folder = "", remote = [] }: {
    rank?: number;
    count?: number;
    states?: Record<number, ProcessState>;
    timeoutMs?: number;
    folder?: string;
    remote?: readonly number[];
  },
) {
  const stateOf = (pid: number) => states[pid - 100] ?? "running";
  const watch = new PeerWatch({ rank, peers: peersOf(count, remote), timeoutMs, folder, stateOf });
  /** Waits in steps of a second until there is a lost. */
  const wait = (seconds: number, isLimited = true) => {
    let lost = watch.pass(250, "new", isLimited);
    let waited = 0;
    while (!lost && waited < seconds) {
      lost = watch.pass(1000, "same", isLimited);
      waited++;
    }
    return lost && { ...lost, waited };
  };
  return { watch, wait };
}

const NONE_NAMED = "rank 0 of 2 got no answer from the others for 10 s";

Deno.test("a rank that has ended is named at once, one that is stopped at the limit of a wait", () => {
  const rank = "rank 1 (pid 101 on host node1) stopped answering: ";
  const cases = [
    ["gone", true, `${rank}it has ended`, 1],
    ["gone", false, `${rank}it has ended`, 1],
    ["stopped", true, `${rank}it is stopped by a signal`, 10],
    ["running", true, NONE_NAMED, 10],
  ] as const;
  for (const [state, isLimited, message, waited] of cases) {
    const lost = watchOf({ states: { 1: state } }).wait(60, isLimited);
    assertEquals(lost, { message, reportsFirst: true, waited });
  }
  assertEquals(watchOf({ states: { 1: "stopped" } }).wait(60, false), undefined);
});

Deno.test("no process is looked at while this rank computes or waits briefly", () => {
  const { watch } = watchOf({ states: { 1: "gone" } });
  for (let i = 0; i < 100; i++) assertEquals(watch.pass(250, "none", false), undefined);
  for (let i = 0; i < 100; i++) assertEquals(watch.pass(400, "new", true), undefined);
});

Deno.test("the lowest rank that is left reports first", () => {
  const states = { 0: "gone", 2: "gone" } as const;
  const first = (rank: number) => watchOf({ rank, count: 4, states }).wait(5)?.reportsFirst;
  assertEquals([first(1), first(3)], [true, false]);
  assertEquals(watchOf({ rank: 1 }).wait(60)?.reportsFirst, false);
});

Deno.test("many lost ranks make one short message", () => {
  const states = Object.fromEntries([1, 2, 3, 4, 5].map((rank) => [rank, "gone" as const]));
  const { message } = watchOf({ count: 6, states }).wait(5)!;
  assert(message.startsWith("rank 1 (pid 101 on host node1) stopped answering: it has ended; "));
  assert(message.endsWith("; and 2 more"), message);
});

Deno.test("a rank that fails by itself and reports it is not reported by others", () =>
  withFolder((folder) => {
    markFailed(folder, 1);
    assert(hasFailed(folder, { rank: 1, pid: Deno.pid }));
    assert(!hasFailed(folder, { rank: 1, pid: 101 }), "left by another process");
    Deno.writeTextFileSync(`${folder}/.rank-1`, "101 failed\n");
    assertEquals(watchOf({ folder, states: { 1: "gone" } }).wait(60), undefined);
    removeRankFile(folder, 1);
    removeRankFile(folder, 1); // twice does no harm
    assert(watchOf({ folder, states: { 1: "gone" } }).wait(60));
  }));

Deno.test("a rank on another machine is named when its file no longer changes", () =>
  withFolder((folder) => {
    const { watch, wait } = watchOf({ folder, remote: [1], timeoutMs: 40_000 });
    let lost = watch.pass(250, "new", true);
    for (let second = 0, count = 0; !lost && second < 60; second++) {
      if (second < 20) writeHeartbeat(folder, 1, count++);
      lost = watch.pass(1000, "same", true);
    }
    const why = /no heartbeat for (\d+) s$/.exec(lost!.message);
    assert(Number(why?.[1]) >= 15 && Number(why?.[1]) <= 25, lost!.message);
    writeHeartbeat(folder, 1, 1000);
    const alive = wait(60)!; // a wait of its own, with one heartbeat at its beginning
    assertEquals(alive.waited, 40);
  }));

Deno.test("a rank writes a heartbeat every few seconds, only with several machines", () =>
  withFolder((folder) => {
    const heartbeats = (remote: readonly number[]) => {
      const { watch } = watchOf({ folder, remote });
      const seen = new Set<string>();
      for (let i = 0; i < 10; i++) {
        watch.pass(HEARTBEAT_MS / 2, "none", false);
        try {
          seen.add(Deno.readTextFileSync(`${folder}/.rank-0`));
        } catch { /* none yet */ }
      }
      return seen.size;
    };
    assertEquals([heartbeats([]), heartbeats([1])], [0, 5]);
  }));

Deno.test("a run folder that is not there stops nothing", () => {
  const { wait } = watchOf({ folder: "no/such/folder", remote: [1] });
  assertEquals(wait(60)?.message, NONE_NAMED);
});

Deno.test("ranks know their process and the name of their machine", async () => {
  assertEquals(await gatherPeers(memoryGroups(1)[0]!), [
    { rank: 0, pid: Deno.pid, host: Deno.hostname(), isLocal: true },
  ]);
});
