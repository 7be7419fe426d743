/** One rank of tests/long/mpi_group_test.ts: what it prints is what it found, as JSON. */
import { detectLaunch } from "../../core/collective/launch.ts";
import { MpiGroup, openMpiLibrary } from "../../core/collective/mpi.ts";

const env = (name: string) => Deno.env.get(name);
const launch = detectLaunch(env);
const group = new MpiGroup(openMpiLibrary(env, launch), launch, {
  timeoutMs: 500,
  mostElements: Number(Deno.args[0]),
});
const { rank, world } = group;
const numbers = () => Array.from({ length: 8 * world }, (_, i) => i + 100 * rank);

const reduced = Float32Array.from(numbers()), doubled = Float64Array.from(numbers());
await group.allReduce(reduced);
await group.allReduce(doubled);
const scattered = Float32Array.from(numbers());
await group.reduceScatter(scattered);
const gathered = scattered.slice();
await group.allGather(gathered);
const sent = new Int32Array(20).fill(rank);
await group.broadcast(sent, world - 1);
const sums = await group.sum([1, rank, 2 ** 52 * rank]);
// Longer than the limit of a sum; a barrier has none.
if (rank === 0) await new Promise((resolve) => setTimeout(resolve, 800));
await group.barrier();
const arrays = { reduced, doubled, scattered, gathered, sent };
const lists = Object.entries(arrays).map(([name, array]) => [name, Array.from(array)]);
console.log(JSON.stringify({ rank, sums, ...Object.fromEntries(lists) }));

if (Deno.args[1] === "alone" && rank === 0) {
  try {
    await group.sum([1]);
  } catch (error) {
    console.error((error as Error).message);
    await new Promise((resolve) => setTimeout(resolve, 300)); // until the launcher has passed it on
    group.abort(4);
  }
}
if (Deno.args[1] === "alone") await new Promise((resolve) => setTimeout(resolve, 60_000));
group.close();
