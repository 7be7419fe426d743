/** One rank of tests/long/rank_watch_test.ts: the last stops itself, and the others hang in MPI. */
import { detectLaunch } from "../../core/collective/environment.ts";
import { HostCollective } from "../../core/collective/host_group.ts";
import { familiesFor, MpiGroup, openMpiLibrary } from "../../core/collective/mpi.ts";
import { gatherPeers } from "../../core/collective/peers.ts";
import { WatchedCollective } from "../../core/collective/watched.ts";
import { ReferenceDevice } from "../../core/runtime/reference/device.ts";
import { RankWatch } from "../../cli/commands/train/rank_watch.ts";

const env = (name: string) => Deno.env.get(name);
const launch = detectLaunch(env);
const device = new ReferenceDevice("f32");
const group = new MpiGroup(openMpiLibrary(env, familiesFor(launch)), launch);
const plain = new HostCollective(group, device);
const collective = new WatchedCollective(
  plain,
  new RankWatch({
    rank: plain.rank,
    peers: await gatherPeers(plain),
    timeoutMs: 2000,
    folder: "no-folder",
    hints: [],
    colored: false,
    json: false,
  }),
);
const data = device.allocate({ dtype: "f32", shape: [1 << 20] });
await collective.sum([1]);
if (plain.rank === plain.world - 1) {
  console.log(`pid ${Deno.pid}`);
  Deno.kill(Deno.pid, "SIGSTOP");
}
await collective.allReduce(data);
console.log("the exchange ended");
