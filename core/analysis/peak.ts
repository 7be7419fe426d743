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
  let best = Infinity;
  for (let run = 0; run < RUNS; run++) {
    const began = performance.now();
    await executable.run(tensors);
    best = Math.min(best, performance.now() - began);
  }
  return 2 * SIZE ** 3 / (best / 1000);
}
