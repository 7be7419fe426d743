/**
 * The cuda device: programs as kernels and cuBLASLt products on one stream.
 *
 * Takes the functions of the three libraries, real ones or those of the emulator that the tests use.
 */
import { fromF32 } from "../../base/dtype.ts";
import { type MemoryPlan, planMemory } from "../../graph/memory_plan.ts";
import type { Program } from "../../graph/program.ts";
import {
  elementBytes,
  elementCount,
  formatType,
  tensorBytes,
  type TensorType,
} from "../../graph/types.ts";
import type { CopyRegion, Device, Executable, HostArray, Weights } from "../device.ts";
import { HOST_ARRAYS } from "../host_device.ts";
import { Owned } from "../owned.ts";
import { TRAITS, type Traits } from "../traits.ts";
import { storedBytes, weightValues } from "../weights.ts";
import { Products, WORKSPACE_BYTES } from "./driver/cublaslt.ts";
import { Driver, type PinnedMemory } from "./driver/driver.ts";
import type { CublasLtSymbols, DriverSymbols } from "./driver/symbols.ts";
import { CudaExecutable, type ExecutionContext } from "./executable.ts";
import { type KernelCompiler, KernelLoader } from "./kernel_loader.ts";
import { copy, copyScalars } from "./kernels/strided.ts";
import { lower } from "./lower.ts";
import type { Lowered } from "./lowering.ts";
import { type ComputeType, CudaTensor, DeviceMemory } from "./memory.ts";
import type { CudaPlace } from "./verified.ts";

/** The libraries of a machine. */
export interface CudaMachine {
  readonly driver: DriverSymbols;
  readonly compiler: KernelCompiler;
  /** Opened when the first product is needed, since loading it takes up to a second. */
  products(): CublasLtSymbols;
}

/** The GPU of a driver with its libraries. @throws {EnvironmentError} when cuBLASLt cannot be opened */
export function placeOf({ compiler, products }: CudaMachine, driver: Driver): CudaPlace {
  return {
    name: driver.deviceInfo().name,
    driverVersion: driver.version,
    nvrtcVersion: compiler.version,
    cublasLtVersion: Number(products().cublasLtGetVersion()),
  };
}

/** Choices of the cuda device. */
export interface CudaOptions {
  /** Number of the device among those the driver shows. */
  readonly ordinal?: number;
  readonly elements?: ComputeType;
}

/** Bytes of a pinned buffer; larger tensors are read at once. */
const PINNED_BYTES = 1 << 14;

/** A result on its way to the host. */
interface PinnedCopy {
  readonly memory: PinnedMemory;
  readonly event: bigint;
}

export class CudaDevice implements Device {
  readonly name = "cuda";
  readonly traits: Traits = TRAITS.cuda;
  readonly cacheType: ComputeType;
  readonly #machine: CudaMachine;
  readonly #context: ExecutionContext;
  readonly #weights = new WeakMap<Weights, Map<string, CudaTensor>>();
  readonly #copies: PinnedCopy[] = [];
  /** Pinned copies to be used again. */
  readonly #freeCopies: PinnedCopy[] = [];
  #products: Products | undefined;

  /**
   * Opens a device and makes its context current on this thread.
   * @throws {EnvironmentError} when there is no driver or device that can be used
   */
  constructor(machine: CudaMachine, { ordinal = 0, elements = "f32" }: CudaOptions = {}) {
    this.cacheType = elements;
    this.#machine = machine;
    const driver = new Driver(machine.driver, ordinal);
    const memory = new DeviceMemory(driver);
    this.#context = {
      driver,
      memory,
      stream: driver.createStream(),
      graphs: new Owned(({ handle }) => driver.destroyGraph(handle)),
      kernels: new KernelLoader(driver, machine.compiler),
      products: () =>
        this.#products ??= new Products(machine.products(), memory.allocate(WORKSPACE_BYTES)),
    };
  }

  /** The GPU with its driver and libraries. @throws {EnvironmentError} when cuBLASLt cannot be opened */
  place(): CudaPlace {
    return placeOf(this.#machine, this.#context.driver);
  }

  plan(program: Program, weights: Weights): MemoryPlan {
    const lowered = this.#lower(program, weights);
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
    const lowered = this.#lower(program, weights);
    const fixed = new Map<string, CudaTensor>();
    for (const [name, tensor] of lowered.constants) {
      fixed.set(name, this.#filled(tensor, tensor.data));
    }
    for (const [name, use] of lowered.weights) {
      fixed.set(name, this.#weight(weights, use.name, use.dtype));
    }
    const plan = planMemory(lowered.program);
    const compiled = { program, weights, lowered, plan, fixed };
    return Promise.resolve(new CudaExecutable(this.#context, compiled));
  }

  allocate(type: TensorType): CudaTensor {
    const tensor = this.#allocate(type);
    this.clear(tensor);
    return tensor;
  }

  view(tensor: CudaTensor, start: number, type: TensorType): CudaTensor {
    const address = tensor.address + BigInt(start * elementBytes(tensor.dtype));
    return new CudaTensor(type, tensor.block, address);
  }

  write(tensor: CudaTensor, data: ArrayLike<number>): void {
    const Kind = HOST_ARRAYS[tensor.dtype];
    const array = data instanceof Kind ? data : Kind.from(data);
    if (array.length > elementCount(tensor.shape)) {
      throw new RangeError(
        `cannot write ${array.length} elements to ${formatType(tensor)}: too many`,
      );
    }
    this.#upload(tensor, array);
  }

  clear(tensor: CudaTensor): void {
    const { driver, stream } = this.#context;
    driver.zero(tensor.address, tensorBytes(tensor), stream);
  }

  read(tensor: CudaTensor): HostArray {
    const { driver, stream } = this.#context;
    const data = new HOST_ARRAYS[tensor.dtype](elementCount(tensor.shape));
    driver.download(data, tensor.address, stream);
    return data;
  }

  readLater(tensor: CudaTensor): () => HostArray {
    const { driver, stream } = this.#context;
    const bytes = tensorBytes(tensor);
    if (bytes > PINNED_BYTES) {
      const data = this.read(tensor);
      return () => data;
    }
    const pinned = this.#freeCopies.pop() ?? this.#pinnedCopy();
    driver.downloadPinned(pinned.memory.address, tensor.address, bytes, stream);
    driver.recordEvent(pinned.event, stream);
    return () => {
      driver.waitFor(pinned.event);
      const data = new HOST_ARRAYS[tensor.dtype](pinned.memory.buffer.slice(0, bytes));
      this.#freeCopies.push(pinned);
      return data;
    };
  }

  free(tensor: CudaTensor): void {
    this.#context.driver.synchronize(this.#context.stream); // a kernel may still use it
    this.#context.memory.free(tensor.block);
  }

  copy(source: CudaTensor, target: CudaTensor, region: CopyRegion): void {
    const { driver, kernels, stream } = this.#context;
    const scalars = copyScalars(
      [region.height, region.width],
      { strides: [region.targetStride, 1], first: region.targetOffset },
      { strides: [region.sourceStride, 1], first: region.sourceOffset },
    );
    const launch = kernels.launch(copy, scalars, { BYTES: elementBytes(source.dtype) });
    launch.set(0, target.address);
    launch.set(1, source.address);
    driver.launch(launch, stream);
  }

  /** The stream of this device, for libraries that put work of their own into it. */
  work(): { readonly driver: Driver; readonly stream: bigint } {
    return this.#context;
  }

  /** After a fault of a kernel every call fails; the first error is thrown once all were made. */
  close(): void {
    const { driver, stream, memory, kernels, graphs } = this.#context;
    const steps = [
      () => driver.synchronize(stream),
      ...this.#copies.flatMap(({ memory, event }) => [
        () => driver.destroyEvent(event),
        () => driver.freePinned(memory),
      ]),
      () => this.#products?.close(),
      () => graphs.close(),
      () => kernels.close(),
      () => memory.close(),
      () => driver.destroyStream(stream),
      () => driver.close(),
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

  #lower(program: Program, weights: Weights): Lowered {
    return lower(program, this.cacheType, (name) => weights.has(name));
  }

  /** A tensor whose elements are undefined. */
  #allocate(type: TensorType): CudaTensor {
    return new CudaTensor(type, this.#context.memory.allocate(tensorBytes(type)));
  }

  #upload(tensor: CudaTensor, data: HostArray): void {
    const bytes = data as ArrayBufferView<ArrayBuffer>;
    this.#context.driver.upload(tensor.address, bytes, this.#context.stream);
  }

  #pinnedCopy(): PinnedCopy {
    const { driver } = this.#context;
    const made = { memory: driver.allocatePinned(PINNED_BYTES), event: driver.createEvent() };
    this.#copies.push(made);
    return made;
  }

  /** A tensor of these elements, which are those of its type or their bytes. */
  #filled(type: TensorType, data: HostArray): CudaTensor {
    const made = this.#allocate(type);
    this.#upload(made, data);
    return made;
  }

  /** A weight in one of the two types, uploaded once. */
  #weight(weights: Weights, name: string, dtype: ComputeType): CudaTensor {
    return this.#weights.getOrInsertComputed(weights, () => new Map())
      .getOrInsertComputed(`${name}#${dtype}`, () => {
        const weight = weights.get(name)!, type = { dtype, shape: weight.shape };
        if (dtype === weight.dtype) return this.#filled(type, storedBytes(weight));
        const values = weightValues(weight) as Float32Array<ArrayBuffer>;
        return this.#filled(type, dtype === "f32" ? values : fromF32(values, "bf16"));
      });
  }
}
