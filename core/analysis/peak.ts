/** The speed a device reaches on one large matrix product, to compare training with. */
import { Builder } from "../graph/builder.ts";
import { linear } from "../ops/linear.ts";
import type { Device } from "../runtime/device.ts";

const SIZE = 768;
const RUNS = 4;

/** Operations per second of the fastest of a few products; takes about a tenth of a second. */
export async function measurePeak(device: Device): Promise<number> {
  const g = new Builder("peak");
  const square = { dtype: "f32", shape: [SIZE, SIZE] } as const;
  g.output("y", linear({ x: g.input("x", square), weight: g.input("w", square) }));
  const executable = await device.compile(g.build(), new Map());
  const tensors = new Map(["x", "w", "y"].map((name) => [name, device.allocate(square)]));
  return 2 * SIZE ** 3 / await fastest(RUNS, () => executable.run(tensors));
}

/** Seconds of the fastest of some runs. */
export async function fastest(runs: number, run: () => Promise<void>): Promise<number> {
  let best = Infinity;
  for (let i = 0; i < runs; i++) {
    const began = performance.now();
    await run();
    best = Math.min(best, (performance.now() - began) / 1000);
  }
  return best;
}
