/** The collective of a single process: there is nothing to exchange. */
import type { Collective } from "./collective.ts";

const done = Promise.resolve();

export const SOLO: Collective = {
  transport: "solo",
  rank: 0,
  world: 1,
  localRank: 0,
  allReduce: () => done,
  reduceScatter: () => done,
  allGather: () => done,
  broadcast: () => done,
  sum: (values) => Promise.resolve([...values]),
  barrier: () => done,
  abort() {},
  close() {},
};
