/**
 * The cuda device: programs as kernels of ours and products of cuBLASLt, on one stream.
 *
 * Takes the functions of the three libraries, real ones or those of the emulator that the tests
 * use. Tensors lie in device memory; reading or writing one waits for the stream. Nothing of this
 * has run on a GPU yet; on the emulator every op, gradient and golden model agrees with the
 * reference.
 */
import { type MemoryPlan, planMemory } from "../../graph/memory_plan.ts";
import type { Program } from "../../graph/program.ts";
import {
  type DType,
  elementBytes,
  elementCount,
  formatType,
  tensorBytes,
  type TensorType,
} from "../../graph/types.ts";
import type {
  CopyRegion,
  Device,
  Executable,
  HostArray,
  HostTensor,
  Weight,
  Weights,
} from "../device.ts";
import { HOST_ARRAYS } from "../host_device.ts";
import { storedBytes, weightValues } from "../weights.ts";
import { DeviceMemory } from "./device_memory.ts";
import type { CubinCache } from "./cubin_cache.ts";
import { Driver } from "./driver/driver.ts";
import { CudaExecutable, type ExecutionContext } from "./executable.ts";
import { type KernelCompiler, KernelLoader } from "./kernel_loader.ts";
import { copy, narrowFloats } from "./kernels/moves.ts";
import { lower } from "./lower.ts";
import type { Choices, Lowered } from "./lowered.ts";
import { architectureOf } from "./driver/nvrtc.ts";
import { NcclCommunicator, type NcclSymbols } from "./driver/nccl.ts";
import { Products, WORKSPACE_BYTES } from "./driver/cublaslt.ts";
import { Staging } from "./staging.ts";
import type { CublasLtSymbols, DriverSymbols } from "./driver/symbols.ts";
import { CudaTensor, type ElementType } from "./tensor.ts";
import { ResultRing } from "./result_ring.ts";
import { choicesOf } from "./autotune.ts";
import type { AutotuneRecords } from "./autotune.ts";
import { TRAITS, type Traits } from "../traits.ts";

/** The libraries of a machine. */
export interface CudaMachine {
  readonly driver: DriverSymbols;
  readonly compiler: KernelCompiler;
  /** Opened when the first product is needed, since loading it takes up to a second. */
  products(): CublasLtSymbols;
}

/** Choices of the cuda device. */
export interface CudaOptions {
  /** Number of the device among those the driver shows. */
  readonly ordinal?: number;
  /** What the model computes in; statistics, losses and gradients of parameters are f32. */
  readonly elements?: ElementType;
  readonly cache?: CubinCache | undefined;
  /** Whether attention runs on warpgroups, where device and sizes allow it; not unless told. */
  readonly wgmma?: boolean | "autotune" | undefined;
  /** Where decisions of autotuning are kept. */
  readonly records?: AutotuneRecords | undefined;
}

export class CudaDevice implements Device {
  readonly name = "cuda";
  readonly traits: Traits = TRAITS.cuda;
  readonly elements: ElementType;
  readonly #driver: Driver;
  readonly #context: ExecutionContext;
  readonly #staging: Staging;
  readonly #ring: ResultRing;
  readonly #weights = new WeakMap<Weights, Map<string, CudaTensor>>();
  readonly #choices: Choices;
  #products: Products | undefined;

  /**
   * Opens a device and makes its context current on this thread.
   * @throws {EnvironmentError} when there is no driver or device that can be used
   */
  constructor(machine: CudaMachine, options: CudaOptions = {}) {
    const { ordinal = 0, elements = "f32", cache, wgmma = false } = options;
    this.elements = elements;
    const driver = this.#driver = new Driver(machine.driver, ordinal);
    const { major, minor } = driver.deviceInfo();
    const architecture = architectureOf(major, minor);
    this.#context = {
      driver,
      memory: new DeviceMemory(driver),
      stream: driver.createStream(),
      graphs: new Set(),
      kernels: new KernelLoader(driver, { compiler: machine.compiler, architecture, cache }),
      products: () => this.#products ??= this.#openProducts(machine),
    };
    this.#choices = choicesOf(wgmma, architecture, { ...this.#context, files: options.records });
    this.#staging = new Staging(driver, this.#context.stream);
    this.#ring = new ResultRing(driver, this.#context.stream, this.#context.kernels);
  }

  get cacheType(): ElementType {
    return this.elements;
  }

  /** Bytes of the device that are free, and all it has. */
  memory(): { free: number; total: number } {
    return this.#driver.memoryInfo();
  }

  plan(program: Program, weights: Weights): MemoryPlan {
    // Whatever is chosen, it needs the same memory.
    const lowered = this.#lower(program, weights, {});
    const plan = planMemory(lowered.program);
    const multiplies = lowered.program.nodes.some(({ attributes }) => "product" in attributes);
    const workspace = multiplies ? WORKSPACE_BYTES : 0;
    const temporaries = plan.sections.temporaries + workspace;
    return {
      ...plan,
      sections: { ...plan.sections, temporaries },
      totalBytes: plan.totalBytes + workspace,
    };
  }

  compile(program: Program, weights: Weights): Promise<Executable> {
    const lowered = this.#lower(program, weights, this.#choices);
    const fixed = new Map<string, CudaTensor>();
    for (const [name, tensor] of lowered.constants) fixed.set(name, this.#constant(tensor));
    for (const [name, use] of lowered.weights) {
      fixed.set(name, this.#weight(weights, use.name, use.dtype));
    }
    const plan = planMemory(lowered.program);
    const compiled = { program, weights, lowered, plan, fixed };
    return Promise.resolve(new CudaExecutable(this.#context, compiled));
  }

  allocate(type: TensorType): CudaTensor {
    const bytes = tensorBytes(type);
    const block = this.#context.memory.allocate(bytes);
    this.#driver.zero(block.address, bytes, this.#context.stream);
    return new CudaTensor(type, block);
  }

  view(tensor: CudaTensor, start: number, type: TensorType): CudaTensor {
    const address = tensor.address + BigInt(start * elementBytes(tensor.dtype));
    return new CudaTensor(type, tensor.block, address);
  }

  write(tensor: CudaTensor, data: ArrayLike<number>): void {
    const array = arrayOf(tensor.dtype, data);
    if (array.length > elementCount(tensor.shape)) {
      throw new RangeError(
        `cannot write ${array.length} elements to ${formatType(tensor)}: too many`,
      );
    }
    if (this.#staging.takes(array.byteLength)) {
      return this.#staging.upload(tensor.address, array);
    }
    this.#driver.synchronize(this.#context.stream); // a kernel may still read what is overwritten
    this.#driver.upload(tensor.address, array);
  }

  clear(tensor: CudaTensor): void {
    this.#driver.zero(tensor.address, tensorBytes(tensor), this.#context.stream);
  }

  read(tensor: CudaTensor): HostArray {
    const data = new HOST_ARRAYS[tensor.dtype](elementCount(tensor.shape));
    if (this.#staging.takes(data.byteLength)) this.#staging.download(data, tensor.address);
    else {
      this.#driver.synchronize(this.#context.stream);
      this.#driver.download(data, tensor.address);
    }
    return data;
  }

  /** Joins this device with those of other ranks; blocks until all have. */
  connect(
    symbols: NcclSymbols,
    options: ConstructorParameters<typeof NcclCommunicator>[2],
  ): NcclCommunicator {
    return new NcclCommunicator(symbols, this.#context, options);
  }

  readLater(tensor: CudaTensor): () => HostArray {
    const count = elementCount(tensor.shape);
    if (tensor.dtype !== "i32" || !this.#ring.takes(count)) {
      const data = this.read(tensor);
      return () => data;
    }
    return this.#ring.send(tensor.address, count);
  }

  free(tensor: CudaTensor): void {
    this.#driver.synchronize(this.#context.stream); // a kernel may still work on it
    this.#context.memory.free(tensor.block);
  }

  copy(source: CudaTensor, target: CudaTensor, region: CopyRegion): void {
    const { kernels, stream } = this.#context;
    const { height, width } = region;
    const site = kernels.site(copy, {
      ...{ count: height * width, n1: 1, n2: height, n3: width },
      ...{ yFirst: region.targetOffset, y0: 0, y1: 0, y2: region.targetStride, y3: 1 },
      ...{ xFirst: region.sourceOffset, x0: 0, x1: 0, x2: region.sourceStride, x3: 1 },
    }, { BYTES: elementBytes(source.dtype) });
    site.set(0, target.address);
    site.set(1, source.address);
    site.launch(this.#driver, stream);
  }

  /** After a fault of a kernel every call fails; the first error is thrown once all was tried. */
  close(): void {
    const { stream, memory, kernels, graphs } = this.#context;
    const steps = [
      () => this.#driver.synchronize(stream),
      () => this.#staging.close(),
      () => this.#ring.close(),
      () => this.#products?.close(),
      () => graphs.forEach((graph) => this.#driver.destroyGraph(graph)),
      () => kernels.close(),
      () => memory.close(),
      () => this.#driver.destroyStream(stream),
      () => this.#driver.close(),
    ];
    const errors = steps.flatMap((step) => {
      try {
        step();
        return [];
      } catch (error) {
        return [error];
      }
    });
    if (errors.length > 0) throw errors[0];
  }

  #lower(program: Program, weights: Weights, choices: Choices): Lowered {
    const isFixed = (name: string) => weights.has(name);
    return lower(program, this.elements, isFixed, choices);
  }

  #openProducts(machine: CudaMachine): Products {
    return new Products(machine.products(), this.#context.memory.allocate(WORKSPACE_BYTES));
  }

  #constant(tensor: HostTensor): CudaTensor {
    const made = new CudaTensor(tensor, this.#context.memory.allocate(tensorBytes(tensor)));
    this.#driver.upload(made.address, tensor.data as Float32Array<ArrayBuffer>);
    return made;
  }

  /** A weight in one of the two types, uploaded once. */
  #weight(weights: Weights, name: string, dtype: ElementType): CudaTensor {
    const known = this.#weights.get(weights) ?? new Map<string, CudaTensor>();
    this.#weights.set(weights, known);
    const key = `${name}#${dtype}`;
    const made = known.get(key) ?? this.#upload(weights.get(name)!, dtype);
    known.set(key, made);
    return made;
  }

  #upload(weight: Weight, dtype: ElementType): CudaTensor {
    const type = { dtype, shape: weight.shape };
    const made = new CudaTensor(type, this.#context.memory.allocate(tensorBytes(type)));
    if (dtype === weight.dtype) {
      this.#driver.upload(made.address, storedBytes(weight) as Uint8Array<ArrayBuffer>);
      return made;
    }
    const values = weightValues(weight) as Float32Array<ArrayBuffer>;
    if (dtype === "f32") {
      this.#driver.upload(made.address, values);
      return made;
    }
    const { memory } = this.#context;
    const wide = memory.allocate(values.byteLength);
    this.#driver.upload(wide.address, values);
    const site = this.#context.kernels.site(narrowFloats, { count: values.length }, { BF16: 1 });
    site.set(0, made.address);
    site.set(1, wide.address);
    site.launch(this.#driver, this.#context.stream);
    this.#driver.synchronize(this.#context.stream);
    memory.free(wide);
    return made;
  }
}

/** The elements as an array of the right type, copied only where it is of another. */
function arrayOf(dtype: DType, data: ArrayLike<number>): HostArray & ArrayBufferView<ArrayBuffer> {
  const Kind = HOST_ARRAYS[dtype];
  return (data instanceof Kind ? data : Kind.from(data)) as
    & HostArray
    & ArrayBufferView<ArrayBuffer>;
}
