/**
 * Benchmark of attention kernels on generated queries, keys and values in the same memory. Sizes are cut
 * so that it takes a fraction of a second. After a kernel fails the context is lost, and nothing can be
 * freed any more.
 */
import { RandomStream } from "../../base/random.ts";
import { narrow, widen } from "../../base/dtype.ts";
import type { Driver } from "./driver/driver.ts";
import type { KernelLoader } from "./kernel_loader.ts";
import type { Kernel, Sizes } from "./kernels/define.ts";
import type { LaunchSite } from "./driver/launch.ts";
import { boxesOf } from "./driver/tensor_map.ts";

/** Largest sizes of a benchmark. */
const MOST = { queries: 2048, slots: 2048, prefix: 512, rows: 4, heads: 8 } as const;
/** Generated numbers; larger tensors repeat them. */
const DRAWN = 2 ** 16 + 1;
/** NaN in bfloat16. */
const NAN = 0x7fc0;

/** Context of a benchmark. */
export interface BenchmarkContext {
  readonly driver: Driver;
  readonly stream: bigint;
  readonly kernels: KernelLoader;
}

/** Results of a kernel. */
export interface AttentionResults {
  readonly out: Float32Array;
  readonly normalizer: Float32Array;
}

interface Tensor {
  readonly address: bigint;
  readonly shape: readonly number[];
}

export class AttentionBenchmark {
  readonly #context: BenchmarkContext;
  readonly #sites: ReadonlyMap<Kernel, LaunchSite>;
  readonly #tensors: Record<string, Tensor> = {};
  readonly #allocated: bigint[] = [];

  /**
   * Compiles the kernels and generates their inputs.
   * @throws {EnvironmentError} when there is no memory for it, or a kernel cannot be compiled
   */
  constructor(context: BenchmarkContext, kernels: readonly Kernel[], sizes: Sizes) {
    this.#context = context;
    const cut = cutSizes(sizes);
    const { HEAD_DIM, ...numbers } = cut;
    const macros = { BF16: 1, HEAD_DIM: HEAD_DIM! };
    try {
      this.#fill(cut);
      this.#sites = new Map(
        kernels.map((kernel) => [kernel, this.#site(kernel, numbers as Sizes, macros)]),
      );
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Runs a kernel once, over results filled with NaN. */
  results(kernel: Kernel): AttentionResults {
    const { driver } = this.#context;
    const { out, normalizer } = this.#tensors as Record<string, Tensor>;
    const [bytes, sums] = [new Uint8Array(2 * count(out!)), new Float32Array(count(normalizer!))];
    driver.upload(out!.address, bytes.fill(0xff));
    driver.upload(normalizer!.address, sums.fill(NaN));
    this.#timed(kernel);
    driver.download(bytes, out!.address);
    driver.download(sums, normalizer!.address);
    return { out: widen(bytes, "bf16"), normalizer: sums };
  }

  /** Median time of a launch in milliseconds, in the order of the kernels, which take turns. */
  times(kernels: readonly Kernel[], rounds: number): number[] {
    const times: number[][] = kernels.map(() => []);
    for (let round = 0; round < rounds; round++) {
      kernels.forEach((kernel, i) => times[i]!.push(this.#timed(kernel)));
    }
    return times.map((list) => list.sort((a, b) => a - b)[Math.floor(rounds / 2)]!);
  }

  /** Frees everything; after a fault nothing can be freed, and the cause has been reported. */
  close(): void {
    for (const address of this.#allocated.splice(0)) {
      try {
        this.#context.driver.free(address);
      } catch {
        return;
      }
    }
  }

  #timed(kernel: Kernel): number {
    const { driver, stream } = this.#context;
    const [start, end] = [
      driver.createEvent({ timing: true }),
      driver.createEvent({ timing: true }),
    ];
    driver.recordEvent(start, stream);
    this.#sites.get(kernel)!.launch(driver, stream);
    driver.recordEvent(end, stream);
    driver.waitFor(end);
    const milliseconds = driver.elapsed(start, end);
    driver.destroyEvent(start);
    driver.destroyEvent(end);
    return milliseconds;
  }

  #site(kernel: Kernel, numbers: Sizes, macros: Sizes): LaunchSite {
    const { driver, kernels } = this.#context;
    const site = kernels.site(kernel, numbers, macros);
    kernel.arguments.forEach(({ name, box }, i) => {
      const tensor = this.#tensors[name];
      if (!tensor) return; // a number, or nothing
      const { address } = tensor;
      site.set(i, box ? driver.encodeTensorMap(boxesOf(tensor, address, box)) : address);
    });
    return site;
  }

  /** Each query sees the text up to its own place, as in training; others are in front of it. */
  #fill({ rows, B, T, S, K, G, M, HEAD_DIM: D }: Sizes): void {
    const past = Math.max(0, S! - T!) >> 1;
    const seen = Math.min(S!, past + T!);
    const text = [rows!, K!, S!, D!];
    this.#put("q", [rows!, T!, K! * G!, D!], draw(rows! * T! * K! * G! * D!, "q", 3));
    for (const name of ["keys", "values"]) {
      const data = draw(count({ shape: text }), name);
      for (let head = 0; head < rows! * K!; head++) {
        data.fill(NAN, (head * S! + seen) * D!, (head + 1) * S! * D!);
      }
      this.#put(name, text, data);
    }
    const prefix = [1, K!, M!, D!];
    for (const name of M! > 0 ? ["prefixKeys", "prefixValues"] : []) {
      this.#put(name, prefix, draw(count({ shape: prefix }), name));
    }
    const last = Int32Array.from({ length: B! * T! }, (_, i) => past + i % T!);
    this.#put("last", [B!, T!], last);
    this.#empty("out", [rows!, T!, K! * G!, D!], 2);
    this.#empty("normalizer", [rows!, T!, K! * G!], 4);
  }

  #put(name: string, shape: readonly number[], data: ArrayBufferView<ArrayBuffer>): void {
    this.#empty(name, shape, data.byteLength / count({ shape }));
    this.#context.driver.upload(this.#tensors[name]!.address, data);
  }

  #empty(name: string, shape: readonly number[], elementBytes: number): void {
    const address = this.#context.driver.allocate(elementBytes * count({ shape }));
    this.#allocated.push(address);
    this.#tensors[name] = { address, shape };
  }
}

function count({ shape }: { readonly shape: readonly number[] }): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** One stream with text of its own in every row, and no more of anything than a benchmark needs. */
function cutSizes({ rows, T, S, K, G, M, scale, HEAD_DIM }: Sizes): Sizes {
  const few = Math.min(rows!, MOST.rows);
  return {
    ...{ rows: few, P: 1, B: few, R: few },
    T: Math.min(T!, Math.max(1, Math.floor(MOST.queries / G!))),
    S: Math.min(S!, MOST.slots),
    K: Math.min(K!, MOST.heads),
    M: Math.min(M!, MOST.prefix),
    ...{ G: G!, scale: scale!, HEAD_DIM: HEAD_DIM! },
  };
}

/** Normal numbers as bfloat16, the same ones each time. */
function draw(length: number, name: string, size = 1): Uint16Array<ArrayBuffer> {
  const random = new RandomStream(0, name);
  const drawn = Float32Array.from(
    { length: Math.min(length, DRAWN) },
    () => random.normal() * size,
  );
  const { buffer, byteOffset } = narrow(drawn, "bf16");
  const block = new Uint16Array(buffer, byteOffset, drawn.length);
  const all = new Uint16Array(length);
  for (let at = 0; at < length; at += DRAWN) all.set(block.subarray(0, length - at), at);
  return all;
}
