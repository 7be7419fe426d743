/**
 * The webgpu device: programs on ONNX Runtime's WebGPU provider, on any GPU with a driver.
 *
 * Programs are lowered as for the processor, with the rules that differ. Tensors and weights stay
 * in the GPU's memory; only ids, positions and results cross. Sines and cosines are computed on the
 * processor (see `cpu_fallback.ts`).
 */
import type { MemoryPlan } from "../../graph/memory_plan.ts";
import type { Program } from "../../graph/program.ts";
import { formatType, type TensorType } from "../../graph/types.ts";
import { EnvironmentError } from "../../base/errors.ts";
import {
  type Bindings,
  checkBindings,
  type CopyRegion,
  type Device,
  type DeviceTensor,
  type Executable,
  type HostArray,
  type Weights,
} from "../device.ts";
import type { Handle } from "./capi/table.ts";
import { bindingRegistry, OnnxExecutable } from "./session/executable.ts";
import type { MatrixFormat } from "../../quant/codes.ts";
import { Session } from "./session/session.ts";
import { SessionPool } from "./session/session_pool.ts";
import { Owned } from "../owned.ts";
import { Gpu, roomError } from "./webgpu/gpu.ts";
import { compileFallback, type CpuFallback, split } from "./webgpu/cpu_fallback.ts";
import { type Elements, staysOnHost, webGpuTarget } from "./lowering/webgpu_rules.ts";
import { Moves } from "./webgpu/copies.ts";
import { type Allocation, GpuTensor } from "./webgpu/tensor.ts";
import { GpuWeights } from "./webgpu/weights.ts";
import { TRAITS } from "../traits.ts";

/** Choices of the webgpu device. */
export interface WebGpuOptions {
  /** Element type of matrices and KV caches; default f32. */
  readonly elements?: Elements;
  /** Format of matrices in memory; default: exact. */
  readonly matrices?: MatrixFormat;
}

export class WebGpuDevice implements Device {
  readonly name = "webgpu";
  readonly traits = TRAITS.webgpu;
  readonly cacheType: Elements;
  readonly #gpu: Gpu;
  readonly #moves: Moves;
  readonly #pool: SessionPool;
  readonly #weights = new Map<Weights, GpuWeights>();
  readonly #memory: Owned<Allocation>;
  readonly #bindings: FinalizationRegistry<Handle>;

  /** @throws {EnvironmentError} when there is no GPU, or it has no f16 and that is asked for */
  constructor({ elements = "f32", matrices = { kind: "f32" } }: WebGpuOptions = {}) {
    this.cacheType = elements;
    const gpu = new Gpu();
    [this.#gpu, this.#moves] = [gpu, new Moves(gpu)];
    this.#pool = new SessionPool(
      { matrices, target: webGpuTarget(elements) },
      ({ lowered, weights }) => {
        const load = () => new GpuWeights(gpu, weights, matrices);
        return Session.open(gpu.api, {
          lowered,
          weights: this.#weights.getOrInsertComputed(weights, load),
          configure: (options) => gpu.configure(options),
          // An update that reads its own tensor needs its copy: no buffer is read and written at once.
          unwanted: ["EliminateIdentity"],
        });
      },
    );
    this.#memory = new Owned(({ value, buffer }) => {
      gpu.api.release("Value", value);
      if (buffer !== undefined) gpu.free(buffer);
    });
    this.#bindings = bindingRegistry(gpu.api);
    if (elements === "f16") this.#requireHalf();
  }

  plan(program: Program, weights: Weights): MemoryPlan {
    return this.#pool.plan(this.#split(program).rest, weights);
  }

  async compile(program: Program, weights: Weights): Promise<Executable> {
    const { host, rest } = this.#split(program);
    const ready = this.#pool.lower(rest, weights);
    const session = await this.#pool.session(ready);
    const onGpu = new OnnxExecutable(this.#gpu.api, ready, session, this.#bindings);
    const part = host && await compileFallback(host, weights, (type) => this.allocate(type));
    return { run: (bindings) => run(program, weights, { onGpu, part }, bindings) };
  }

  /** @throws {EnvironmentError} when the GPU has no room for it */
  allocate(type: TensorType): GpuTensor {
    const tensor = new GpuTensor(this.#gpu, type);
    this.#memory.add(tensor, tensor.allocation);
    try {
      this.#moves.clear(tensor);
    } catch (error) {
      this.free(tensor);
      throw roomError(error, `allocate ${formatType(type)}`);
    }
    return tensor;
  }

  /** @throws {RangeError} for a part of a tensor: memory of WebGPU has none */
  view(tensor: DeviceTensor, start: number, type: TensorType): GpuTensor {
    const view = (tensor as GpuTensor).view(start, type);
    this.#memory.add(view, view.allocation);
    return view;
  }

  write(tensor: DeviceTensor, data: ArrayLike<number>): void {
    (tensor as GpuTensor).write(data);
  }

  clear(tensor: DeviceTensor): void {
    this.#moves.clear(tensor as GpuTensor);
  }

  read(tensor: DeviceTensor): HostArray {
    return (tensor as GpuTensor).read();
  }

  free(tensor: DeviceTensor): void {
    this.#memory.free((tensor as GpuTensor).allocation);
  }

  copy(source: DeviceTensor, target: DeviceTensor, region: CopyRegion): void {
    this.#moves.copy(source as GpuTensor, target as GpuTensor, region);
  }

  close(): void {
    this.#pool.close();
    this.#moves.close();
    for (const weights of this.#weights.values()) weights.free();
    this.#memory.close();
    this.#gpu.close();
  }

  #split(program: Program) {
    return split(this.#pool.prepare(program), staysOnHost);
  }

  /** A GPU without 16-bit arithmetic fails at the first program that needs it; better now. */
  #requireHalf(): void {
    try {
      this.allocate({ dtype: "f16", shape: [8] });
    } catch (cause) {
      this.close();
      throw new EnvironmentError("`--dtype f16` needs a GPU with 16-bit arithmetic (shader-f16)", {
        hints: ["leave out `--dtype`, or use `--quantize q8` or `q4` for less memory"],
        cause,
      });
    }
  }
}

/** Runs both parts of a program once. */
async function run(
  program: Program,
  weights: Weights,
  { onGpu, part }: { onGpu: Executable; part: CpuFallback | undefined },
  bindings: Bindings,
): Promise<void> {
  checkBindings(program, weights, bindings);
  await part?.run(bindings);
  try {
    await onGpu.run(new Map([...bindings, ...part?.results ?? []]));
  } catch (error) {
    throw roomError(error, `run ${program.name}`);
  }
  for (const name of [...program.outputs.keys(), ...program.updates.keys()]) {
    (bindings.get(name) as GpuTensor).changed();
  }
}
