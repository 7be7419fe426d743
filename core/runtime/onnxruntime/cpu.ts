/**
 * The cpu device: programs on ONNX Runtime through its C API.
 *
 * Tensors are JavaScript arrays that ONNX Runtime reads and writes in place: nothing is copied on the
 * way in or out, KV caches are updated where they lie, and runs happen on other threads while the
 * event loop continues. One session serves all sizes of a model (see `lower.ts`).
 */
import type { MemoryPlan } from "../../graph/memory_plan.ts";
import type { Program } from "../../graph/program.ts";
import { elementCount, type TensorType } from "../../graph/types.ts";
import type {
  CompileOptions,
  Device,
  DeviceTensor,
  Executable,
  HostArray,
  Weights,
} from "../device.ts";
import { HOST_ARRAYS, HostDevice } from "../host_device.ts";
import { mapLargeBlocks, returnFreedBlocks } from "../memory/allocator.ts";
import { type OnnxApi, onnxApi } from "./capi/capi.ts";
import type { Handle } from "./capi/table.ts";
import type { OnnxType } from "./element_types.ts";
import { openChain, partsOf, planOfParts } from "./session/chain.ts";
import { bindingRegistry, OnnxExecutable, type OnnxValue } from "./session/executable.ts";
import type { MatrixFormat } from "../../quant/codes.ts";
import { CPU_TARGET } from "./lowering/rules.ts";
import { Session, weightBytes } from "./session/session.ts";
import type { WeightUse } from "./lowering/lower.ts";
import { isTable } from "./lowering/weight_parts.ts";
import { SessionPool } from "./session/session_pool.ts";
import { packsCodes, type Tables, WeightMemory } from "./session/weight_memory.ts";
import { letSignalsThrough } from "../../base/abortable.ts";
import { usableCores } from "../../base/platform/mod.ts";
import { TRAITS, type Traits } from "../traits.ts";

/** Choices of the cpu device. */
export interface CpuOptions {
  /** Threads for one run; default: the cores this process may use. */
  readonly threads?: number;
  /** Format of matrices in memory; default f32. */
  readonly matrices?: MatrixFormat;
  /** True to give a single row bit for bit the results of several, where that takes longer too. */
  readonly alikeRows?: boolean | undefined;
  /** Elements of matrices that are worth a session of their own; tests take fewer. */
  readonly splitAbove?: number;
}

/** A tensor over an array of ours. The array lives as long as the tensor. */
class CpuTensor implements OnnxValue {
  readonly dtype: TensorType["dtype"];
  readonly shape: TensorType["shape"];
  readonly data: HostArray;
  readonly value: Handle;

  constructor(
    api: OnnxApi,
    type: TensorType,
    collect: FinalizationRegistry<Handle>,
    data: HostArray = new HOST_ARRAYS[type.dtype](elementCount(type.shape)),
  ) {
    this.dtype = type.dtype;
    this.shape = type.shape;
    this.data = data;
    const address = Deno.UnsafePointer.of(this.data as Uint8Array<ArrayBuffer>);
    this.value = api.tensor(address, this.data.byteLength, type.shape, type.dtype as OnnxType);
    collect.register(this, this.value);
  }
}

export class CpuDevice extends HostDevice implements Device {
  readonly name = "cpu";
  readonly traits: Traits = TRAITS.cpu;
  readonly cacheType = "f32";
  readonly threads: number;
  readonly #splitAbove: number | undefined;
  readonly #api: OnnxApi;
  readonly #pool: SessionPool;
  readonly #values: FinalizationRegistry<Handle>;
  readonly #bindings: FinalizationRegistry<Handle>;

  /** Loads ONNX Runtime. Throws `EnvironmentError` when that is not possible. */
  constructor(
    { threads = usableCores(), matrices = { kind: "f32" }, alikeRows, splitAbove }: CpuOptions = {},
  ) {
    super();
    this.#splitAbove = splitAbove;
    const api = onnxApi();
    this.#api = api;
    this.threads = threads;
    // Until the copies that a session packs are free; two sessions with copies would take the most memory.
    let packing: Promise<unknown> | undefined;
    const tables = new WeakMap<Weights, Tables>();
    this.#pool = new SessionPool(
      { matrices, alikeRows, target: CPU_TARGET, readsFiles: true, heldBytes },
      ({ lowered, weights, isPart, fixedSizes }, folder) => {
        const configure = (options: Handle) => {
          api.setThreads(options, threads);
          const isFree = lowered.weights.size + lowered.fileWeights.size === 0;
          if (isFree || fixedSizes) return keepToArena(api, options);
          mapLargeBlocks();
          // Parts run one after the other, so what one needs serves the next.
          if (isPart) api.shareArena(options, { exactly: false });
        };
        const shared = tables.getOrInsertComputed(weights, () => new Map());
        const memory = new WeightMemory(api, weights, matrices, shared);
        const own = Promise.withResolvers<unknown>();
        const turn = () => {
          const before = memory.holdsCopies ? packing : undefined;
          if (memory.holdsCopies) packing = own.promise;
          return before;
        };
        // A part is given half the weights, at once, while the other is packed.
        const pause = isPart ? undefined : letSignalsThrough;
        const source = { lowered, weights: memory, folder, configure, turn, pause };
        const opening = Session.openLater(api, source);
        own.promise.then(() => packing === own.promise ? packing = undefined : undefined);
        opening.then(own.resolve, own.resolve);
        return opening;
      },
    );
    this.#values = new FinalizationRegistry((handle) => api.release("Value", handle));
    this.#bindings = bindingRegistry(api);
  }

  /** Sessions loaded so far; one per model and head is what the lowering aims for. */
  get sessionCount(): number {
    return this.#pool.size;
  }

  plan(program: Program, weights: Weights): MemoryPlan {
    const prepared = this.#pool.prepare(program);
    const plans = this.#partsOf(prepared, weights).map((part) => this.#pool.plan(part, weights));
    const [plan] = plans as [MemoryPlan];
    return plans.length === 1 ? plan : planOfParts(program, plans);
  }

  async compile(
    program: Program,
    weights: Weights,
    { fixedSizes = false }: CompileOptions = {},
  ): Promise<Executable> {
    const programs = this.#partsOf(this.#pool.prepare(program), weights);
    const open = async (part: Program) => {
      const ready = this.#pool.lower(part, weights, { fixedSizes });
      const isPart = programs.length > 1;
      const session = await this.#pool.session({ ...ready, isPart, fixedSizes });
      return new OnnxExecutable(this.#api, ready, session, this.#bindings);
    };
    if (fixedSizes) returnFreedBlocks();
    const [first, ...others] = programs as [Program, ...Program[]];
    if (others.length === 0) return await open(first);
    return await openChain(programs, open, { weights, allocate: (type) => this.allocate(type) });
  }

  allocate(type: TensorType): DeviceTensor {
    return new CpuTensor(this.#api, type, this.#values);
  }

  view(tensor: CpuTensor, start: number, type: TensorType): DeviceTensor {
    const data = tensor.data.subarray(start, start + elementCount(type.shape));
    return new CpuTensor(this.#api, type, this.#values, data);
  }

  close(): void {
    this.#pool.close();
  }

  #partsOf(program: Program, weights: Weights): Program[] {
    return partsOf(program, weights, { threads: this.threads, least: this.#splitAbove });
  }
}

/**
 * Bytes of a weight that stay in memory. Matrices are packed: of quantized ones there are then a copy of the
 * codes and, as measured, two of the scales, beside what was packed. Scales stay too, and codes that are
 * neither in a file nor known to be packed. Of a table in a file only the rows that are read come into memory.
 */
function heldBytes(use: WeightUse, isInFile: boolean): number {
  const bytes = weightBytes(use);
  if (use.form === "blocks") return isInFile || packsCodes() ? bytes : 2 * bytes;
  if (use.form === "scales") return 3 * bytes;
  return isInFile && (use.form === "stored" || isTable(use)) ? 0 : bytes;
}

/**
 * In training, sessions share one arena that grows by what is asked for, and there is no memory
 * pattern, which would be a second arena beside the one that the first run filled.
 */
function keepToArena(api: OnnxApi, options: Handle): void {
  api.disableMemoryPattern(options);
  api.shareArena(options, { exactly: true });
}
