/**
 * The bring-up of a GPU: stages from loading the libraries to a training step, each on what the ones before
 * have shown. The first that fails ends it, since everything after it rests on that.
 *
 * Stages with numbers compare the device with the reference. A GPU that passes all of them is recorded, and
 * `--device cuda` accepts it from then on.
 */
import { type CostDevice, DEVICES } from "../analysis/devices.ts";
import { NumericalError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import { Engine } from "../generate/engine.ts";
import { type CeilingSizes, measureCeilings } from "../runtime/cuda/ceilings.ts";
import { compareNodes, relativeDifference } from "../runtime/cuda/compare_nodes.ts";
import { CudaDevice, type CudaMachine, placeOf } from "../runtime/cuda/device.ts";
import { Driver, formatVersion } from "../runtime/cuda/driver/driver.ts";
import { KERNEL_FILES } from "../runtime/cuda/kernels/mod.ts";
import { describeMachine } from "../runtime/cuda/open.ts";
import { architectureOf } from "../runtime/cuda/driver/nvrtc.ts";
import type { ComputeType } from "../runtime/cuda/memory.ts";
import type { CudaPlace } from "../runtime/cuda/verified.ts";
import type { Device } from "../runtime/device.ts";
import { ReferenceDevice } from "../runtime/reference/device.ts";
import { trainableSpecs } from "../train/trainable.ts";
import { Trainer } from "../train/trainer.ts";
import { HEAD_DIMS, kernelPrograms, tinyConfig, tinyWeights } from "./programs.ts";

/** The outcome of a stage. */
export interface StageResult {
  readonly stage: string;
  readonly ok: boolean;
  /** Result, or the call or the difference that failed. */
  readonly found: string;
  readonly seconds: number;
}

/** Options of the bring-up. */
export interface BringUpOptions {
  /** Opens the libraries. */
  readonly open: () => CudaMachine;
  readonly ordinal: number;
  readonly sizes: CeilingSizes;
  /** True if no node is run a second time, which takes long on an emulator. */
  readonly once?: boolean;
  /** Called when all stages have passed. */
  readonly onVerified: (place: CudaPlace) => void;
}

/** Largest relative difference of one op, of logits, and of losses and norms of gradients. */
const TOLERANCE: Readonly<Record<ComputeType, { op: number; logits: number; training: number }>> = {
  f32: { op: 1e-4, logits: 1e-4, training: 1e-4 },
  bf16: { op: 2 ** -6, logits: 0.1, training: 0.05 },
};

const percent = (difference: number) => difference.toExponential(0);

/** @throws {NumericalError} where numbers are further apart than they may be */
function requireNear(what: string, difference: number, tolerance: number): void {
  if (difference <= tolerance) return; // not so for NaN
  throw new NumericalError(
    `${what} differs from the reference by ${difference.toPrecision(2)} of its largest value, ` +
      `expected at most ${tolerance}`,
  );
}

/** One stage: what it shows, from a device that earlier stages have opened. */
interface Stage {
  readonly name: string;
  run(context: Context): string | Promise<string>;
}

/** Results of earlier stages that later ones need. */
interface Context extends BringUpOptions {
  machine?: CudaMachine;
  place?: CudaPlace;
  /** Keeps the context, which its last release would reset while cuBLASLt stays loaded. */
  holder?: Driver;
}

const reference = new ReferenceDevice("f64");

/** Uses what is closed afterwards. An error of closing does not replace one before it. */
async function closing<T extends { close(): void }>(
  opened: T,
  use: (opened: T) => string | Promise<string>,
): Promise<string> {
  let found;
  try {
    found = await use(opened);
  } catch (error) {
    closeQuietly(opened);
    throw error;
  }
  opened.close();
  return found;
}

function closeQuietly(opened: { close(): void } | undefined): void {
  try {
    opened?.close();
  } catch {
    // An earlier error says more.
  }
}

const withDevice = (
  { machine, ordinal }: Context,
  elements: ComputeType,
  use: (device: CudaDevice) => Promise<string>,
) => closing(new CudaDevice(machine!, { ordinal, elements }), use);

const withDriver = ({ machine, ordinal }: Context, use: (driver: Driver) => string) =>
  closing(new Driver(machine!.driver, ordinal), use);

async function compareKernels(
  device: CudaDevice,
  { once = false }: BringUpOptions,
): Promise<string> {
  const ops = new Set<string>(), seen = new Set<string>();
  let worst = { op: "", difference: 0 };
  for (const headDim of HEAD_DIMS) {
    for (const given of kernelPrograms(headDim, device.cacheType)) {
      for await (const each of compareNodes(device, reference, { ...given, seen, once })) {
        requireNear(`op ${each.op}`, each.difference, TOLERANCE[device.cacheType].op);
        if (each.difference > worst.difference) worst = each;
        ops.add(each.op);
      }
    }
  }
  return `${ops.size} ops, within ${percent(worst.difference)} of the reference (${worst.op})`;
}

/**
 * Logits of a prompt and of tokens after it, of which the third step replays a captured graph, and of a
 * token of eight streams.
 */
async function logitsOn(device: Device): Promise<Float32Array[]> {
  const random = new RandomStream(1, "prompt");
  const found: Float32Array[] = [];
  for (const [streams, steps] of [[2, [20, 1, 1, 1, 1]], [8, [1]]] as const) {
    const config = { ...tinyConfig(HEAD_DIMS[0]!), streams };
    const engine = new Engine(device, config, tinyWeights(config));
    const cache = engine.createCache(1, 64);
    let length = 0;
    for (const tokens of steps) {
      const ids = Array.from({ length: tokens }, () => random.integer(config.vocabSize));
      const input = { ids: [ids], start: [length], select: [tokens - 1] };
      const outputs = await engine.forward(cache, input);
      found.push(Float32Array.from(outputs.get("logits")!));
      length += tokens;
    }
  }
  return found;
}

async function compareLogits(device: CudaDevice): Promise<string> {
  const expected = await logitsOn(reference), found = await logitsOn(device);
  const differences = found.map((logits, i) => relativeDifference(logits, expected[i]!));
  const worst = Math.max(...differences);
  requireNear("the logits", worst, TOLERANCE[device.cacheType].logits);
  return `a prompt and five tokens, within ${percent(worst)} of the reference`;
}

/** Losses and norms of gradients of two steps on one batch. */
async function trainOn(device: Device): Promise<number[]> {
  const config = tinyConfig(HEAD_DIMS[0]!), T = 24;
  const weights = tinyWeights(config);
  const trainer = await Trainer.create(device, {
    config,
    trained: trainableSpecs(config, { params: "all", aggregation: "dynamic" }),
    initial: (name) => weights.get(name)!.data,
    sizes: { batch: 2, tokens: T },
    optimizer: { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, clip: 1 },
    accumulates: false,
    recompute: false,
  });
  const random = new RandomStream(2, "rows");
  const ids = Array.from({ length: 2 * T }, () => random.integer(config.vocabSize));
  const isLast = (i: number) => i % T === T - 1;
  const batch = {
    ids,
    positions: ids.map((_, i) => i % T),
    targets: ids.map((_, i) => ids[i + 1] ?? 0),
    weights: ids.map((_, i) => isLast(i) ? 0 : 1),
    predicted: 2 * (T - 1),
  };
  const found: number[] = [];
  for (let step = 1; step <= 2; step++) {
    await trainer.accumulate(batch);
    found.push(trainer.sums.loss);
    const rates = { backbone: 1e-3, prefix: 1e-3, aggregator: 1e-3 };
    found.push((await trainer.update(step, rates)).gradNorm);
  }
  return found;
}

async function compareTraining(device: CudaDevice): Promise<string> {
  const expected = await trainOn(reference), found = await trainOn(device);
  const worst = Math.max(...found.map((x, i) => Math.abs(x / expected[i]! - 1)));
  requireNear("the loss or the norm of the gradients", worst, TOLERANCE[device.cacheType].training);
  return `two steps, within ${percent(worst)} of the reference`;
}

/** The data sheet of a GPU by the driver's name for it, such as "NVIDIA A100-SXM4-80GB". */
export function sheetOf(name: string): CostDevice | undefined {
  const text = name.toLowerCase().replace(/rtx (?=\d)/, "rtx");
  const words = text.split(/[^a-z0-9]+/);
  const agreement = ({ name }: CostDevice) => {
    const [model, ...details] = name.split("-") as [string, ...string[]];
    const known = details.filter((detail) => text.includes(detail)).length;
    return words.includes(model) ? 1 + known : 0;
  };
  const [best] = DEVICES.toSorted((a, b) => agreement(b) - agreement(a));
  return best && agreement(best) > 0 ? best : undefined;
}

function describeCeilings({ machine, ordinal, sizes, place }: Context): string {
  const { bandwidth, flopRate } = measureCeilings(machine!, ordinal, sizes);
  const sheet = sheetOf(place!.name);
  const of = (measured: number, promised: number | undefined) =>
    promised === undefined ? "" : ` (${Math.round(100 * measured / promised)}% of the data sheet)`;
  return `${(bandwidth / 1e9).toFixed(0)} GB/s${of(bandwidth / 1e9, sheet?.bandwidthGbS)}, ` +
    `${(flopRate / 1e12).toFixed(1)} TFLOP/s in bf16${of(flopRate / 1e12, sheet?.tflops)}`;
}

function inBothTypes(
  what: string,
  compare: (device: CudaDevice, options: BringUpOptions) => Promise<string>,
): Stage[] {
  return (["f32", "bf16"] as const).map((type) => ({
    name: `${what} in ${type}`,
    run: (context) => withDevice(context, type, (device) => compare(device, context)),
  }));
}

const STAGES: readonly Stage[] = [
  {
    name: "libraries",
    run(context) {
      return describeMachine(context.machine = context.open());
    },
  },
  {
    name: "context",
    run(context) {
      const driver = context.holder = new Driver(context.machine!.driver, context.ordinal);
      const { name, major, minor } = driver.deviceInfo();
      context.place = placeOf(context.machine!, driver);
      architectureOf(major, minor);
      return `${name}, capability ${major}.${minor}, CUDA ${formatVersion(driver.version)}`;
    },
  },
  {
    name: "memory",
    run: (context) =>
      withDriver(context, (driver) => {
        driver.free(driver.allocate(2 ** 24));
        const { free, total } = driver.memoryInfo();
        return `${(free / 2 ** 30).toFixed(1)} GiB free of ${(total / 2 ** 30).toFixed(1)} GiB`;
      }),
  },
  {
    name: "copy",
    run: (context) =>
      withDriver(context, (driver) => {
        const data = Float32Array.from({ length: 2 ** 18 }, (_, i) => i * 0.5);
        const found = new Float32Array(data.length);
        const stream = driver.createStream(), address = driver.allocate(data.byteLength);
        driver.upload(address, data, stream);
        driver.download(found, address, stream);
        driver.free(address);
        driver.destroyStream(stream);
        requireNear("memory that was copied there and back", relativeDifference(found, data), 0);
        return "1 MiB there and back";
      }),
  },
  {
    name: "compiler",
    run: (context) =>
      withDriver(context, (driver) => {
        const { major, minor } = driver.deviceInfo();
        const architecture = architectureOf(major, minor);
        const file = KERNEL_FILES[0]!;
        const target = { architecture, defines: file.specialisations[0]! };
        const { bytes } = context.machine!.compiler.compile(file, target);
        driver.unloadModule(driver.loadModule(bytes, file.name));
        return `${file.name} for ${architecture}`;
      }),
  },
  ...inBothTypes("kernels", compareKernels),
  ...inBothTypes("logits", compareLogits),
  ...inBothTypes("training", compareTraining),
  { name: "rates", run: describeCeilings },
];

/** Runs the stages until one fails. */
export async function* bringUp(options: BringUpOptions): AsyncGenerator<StageResult> {
  const context: Context = { ...options };
  try {
    for (const { name, run } of STAGES) {
      const began = performance.now();
      const result = (ok: boolean, found: string) => ({
        ...{ stage: name, ok, found, seconds: (performance.now() - began) / 1000 },
      });
      try {
        yield result(true, await run(context));
      } catch (error) {
        return yield result(false, (error as Error).message);
      }
    }
  } finally {
    closeQuietly(context.holder);
  }
  options.onVerified(context.place!);
}
