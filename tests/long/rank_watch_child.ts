/** One rank of tests/long/rank_watch_test.ts: the last stops itself, and the others hang in MPI. */
import { detectLaunch } from "../../core/collective/launch.ts";
import { DataParallel } from "../../core/collective/data_parallel.ts";
import { MpiGroup, openMpiLibrary } from "../../core/collective/mpi.ts";
import { gatherPeers } from "../../core/collective/peers.ts";
import { onDevice } from "../../core/collective/process_group.ts";
import { ReferenceDevice } from "../../core/runtime/reference/device.ts";
import { RankWatch } from "../../cli/ranks/watch.ts";

const env = (name: string) => Deno.env.get(name);
const launch = detectLaunch(env);
const device = new ReferenceDevice("f32");
const group = new MpiGroup(openMpiLibrary(env, launch), launch);
const collective = new DataParallel(device, onDevice(group, device), { shards: false });
collective.watch = new RankWatch({
  rank: group.rank,
  peers: await gatherPeers(group),
  timeoutMs: 2000,
  folder: "no-folder",
  hints: [],
  colored: false,
  json: false,
});
const data = device.allocate({ dtype: "f32", shape: [1 << 20] });
await collective.sum([1]);
if (group.rank === group.world - 1) {
  console.log(`pid ${Deno.pid}`);
  Deno.kill(Deno.pid, "SIGSTOP");
}
await collective.sumGradients(data);
console.log("the exchange ended");
