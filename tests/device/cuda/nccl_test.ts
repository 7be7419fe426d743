/**
 * Two emulated GPUs train together over an emulated NCCL, and follow the golden run of one process; one GPU,
 * a real one where tests are to run on it, is a job of one rank.
 */
import { assertEquals } from "@std/assert";
import { DataParallel } from "../../../core/collective/data_parallel.ts";
import { NcclGroup } from "../../../core/collective/nccl.ts";
import { ID_BYTES, openNccl, uniqueId } from "../../../core/collective/nccl_library.ts";
import { emulatedMachine, emulatorPresent } from "../../emulator/mod.ts";
import { EmulatedNccl } from "../../emulator/nccl.ts";
import { CUDA, openEmulated, openTestCuda, testIf } from "../devices.ts";
import { readExpected } from "../goldens.ts";
import { assertStep, batchOf, openTrainer } from "../train/golden_runs.ts";

const test = testIf(emulatorPresent());
const NAME = "qwen2-p2-tied-f32";
const WORLD = 2;

testIf(CUDA)(
  "cuda: NCCL of one rank leaves tensors as they are, and adds up its own numbers",
  async () => {
    const onGpu = Deno.env.get("PARSCALE_TEST_GPU") === "1";
    const machine = onGpu ? undefined : emulatedMachine();
    const device = machine ? openEmulated("f32", machine) : openTestCuda();
    const symbols = machine ? new EmulatedNccl([machine]).symbols(0) : openNccl().symbols;
    const place = { rank: 0, world: 1, timeoutMs: 60_000 };
    const ranks = new NcclGroup(symbols, device, uniqueId(symbols), place);
    const tensor = device.allocate({ dtype: "f32", shape: [1000] });
    const values = Float32Array.from({ length: 1000 }, (_, i) => Math.sin(i));
    device.write(tensor, values);
    await ranks.allReduce(tensor);
    await ranks.reduceScatter(tensor);
    await ranks.allGather(tensor);
    await ranks.broadcast(tensor, 0);
    assertEquals(device.read(tensor), values);
    assertEquals(await ranks.sum([1e300, -Math.PI, 0, 7]), [1e300, -Math.PI, 0, 7]);
    await ranks.barrier();
    ranks.close();
    device.close();
  },
);

for (const shards of [true, false]) {
  test(`two emulated cuda devices follow the golden run, ${shards ? "sharded" : "replicated"}`, async () => {
    const { train } = readExpected(NAME);
    const run = train!.find(({ mode, repeat }) => mode === "full" && repeat === 1)!;
    const [rows, tokens] = [run.batches[0]!.length, run.batches[0]![0]!.length];
    assertEquals(rows % WORLD, 0);
    const machines = Array.from({ length: WORLD }, () => emulatedMachine());
    const nccl = new EmulatedNccl(machines);
    const weights = await Promise.all(machines.map(async (machine, rank) => {
      const device = openEmulated("f32", machine);
      const id = new Uint8Array(ID_BYTES);
      const place = { rank, world: WORLD, timeoutMs: 60_000 };
      const group = new NcclGroup(nccl.symbols(rank), device, id, place);
      const collective = new DataParallel(device, group, { shards });
      const trainer = await openTrainer(device, NAME, { rows: rows / WORLD, tokens, collective });
      for (const i of run.steps.keys()) {
        const own = run.batches[i]!.filter((_, row) => row % WORLD === rank);
        await trainer.accumulate(batchOf(own));
        await trainer.exchangeSums();
        await assertStep(trainer, run, i);
      }
      await collective.barrier();
      const values = trainer.groups.map((arrays) => trainer.device.read(arrays.values));
      collective.close();
      device.close();
      return values;
    }));
    assertEquals(weights[1], weights[0], "both ranks hold the same bits");
    for (const machine of machines) assertEquals(machine.usedBytes(), 0);
  });
}
