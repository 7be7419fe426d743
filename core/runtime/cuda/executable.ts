/**
 * A lowered program as launches on a stream. The host does not wait; reading a result does.
 *
 * The first run with some tensors launches step by step, which also warms every kernel; the second is
 * captured as a graph, and from then on a run is one launch of that graph. A graph holds addresses, so
 * other tensors, or an arena that has moved, start over.
 */
import { type MemoryPlan, placeOf } from "../../graph/memory_plan.ts";
import type { Node, Program } from "../../graph/program.ts";
import type { Value } from "../../graph/value.ts";
import { type Bindings, checkBindings, type Executable, type Weights } from "../device.ts";
import type { Owned } from "../owned.ts";
import type { Products } from "./driver/cublaslt.ts";
import type { Driver } from "./driver/driver.ts";
import type { KernelLoader } from "./kernel_loader.ts";
import type { Lowered, Step } from "./lowering.ts";
import type { CudaTensor, DeviceMemory } from "./memory.ts";

/** A captured graph. */
export interface Graph {
  readonly handle: bigint;
}

/** State shared by all programs of a device. */
export interface ExecutionContext {
  readonly driver: Driver;
  readonly stream: bigint;
  readonly memory: DeviceMemory;
  readonly kernels: KernelLoader;
  /** Graphs end with the programs that captured them. */
  readonly graphs: Owned<Graph>;
  readonly products: () => Products;
}

/** A program with its lowered form, memory plan, weights and constants. */
export interface CompiledProgram {
  /** As it was given, before anything was rewritten. */
  readonly program: Program;
  readonly weights: Weights;
  readonly lowered: Lowered;
  readonly plan: MemoryPlan;
  /** Weights and constants of the lowered program. */
  readonly fixed: ReadonlyMap<string, CudaTensor>;
}

/** One step: sets its addresses, and issues it. */
interface Issue {
  bind(address: (value: Value) => bigint): void;
  issue(): void;
}

export class CudaExecutable implements Executable {
  readonly #steps: readonly Issue[];
  /** By section and offset outside the arena, the name of the tensor bound there. */
  readonly #names: ReadonlyMap<string, string>;
  /** Tensors of the last run, kept so that their memory is not returned. */
  #bound = new Map<string, CudaTensor>();
  #arena: bigint | undefined;
  #runs = 0;
  #graph: Graph | undefined;

  /** Loads the kernels of the program. */
  constructor(
    private readonly context: ExecutionContext,
    private readonly compiled: CompiledProgram,
  ) {
    context.driver.activate(); // cuBLASLt uses the context that is current
    const { inputs, parameters, state, outputs, nodes } = compiled.lowered.program;
    this.#names = new Map(
      [inputs, parameters, state, outputs].flatMap((values) =>
        [...values].map(([name, value]) => [placeOf(compiled.plan, value), name])
      ),
    );
    this.#steps = nodes.flatMap((node) => prepareStep(context, node) ?? []);
  }

  run(bindings: Bindings): Promise<void> {
    const { driver, stream, memory, graphs } = this.context;
    driver.activate();
    memory.reserve(this.compiled.plan.sections.temporaries);
    if (!this.#isBound(bindings)) this.#bind(bindings as ReadonlyMap<string, CudaTensor>);
    this.#runs++;
    const issue = () => this.#steps.forEach((step) => step.issue());
    if (this.#runs === 2) {
      this.#graph = { handle: driver.capture(stream, issue) };
      graphs.add(this, this.#graph);
    }
    if (this.#graph === undefined) issue();
    else driver.launchGraph(this.#graph.handle, stream);
    return Promise.resolve();
  }

  #isBound(bindings: Bindings): boolean {
    if (this.context.memory.arena !== this.#arena) return false;
    for (const [name, tensor] of this.#bound) if (bindings.get(name) !== tensor) return false;
    return true;
  }

  /** Sets the addresses of every step. */
  #bind(bindings: ReadonlyMap<string, CudaTensor>): void {
    const { program, weights, fixed, plan } = this.compiled;
    checkBindings(program, weights, bindings);
    const { memory, graphs } = this.context;
    this.#bound = new Map();
    for (const name of this.#names.values()) {
      if (!fixed.has(name)) this.#bound.set(name, bindings.get(name)!);
    }
    const arena = this.#arena = memory.arena;
    this.#runs = 0;
    if (this.#graph) graphs.free(this.#graph);
    this.#graph = undefined;
    const address = (value: Value) => {
      const { section, offset } = plan.placements.get(value)!;
      if (section === "temporaries") return arena + BigInt(offset);
      const name = this.#names.get(placeOf(plan, value))!;
      return (fixed.get(name) ?? this.#bound.get(name)!).address;
    };
    for (const step of this.#steps) step.bind(address);
  }
}

/** A kernel launch, a cuBLASLt product or a memset; nothing for a view. */
function prepareStep(context: ExecutionContext, node: Node): Issue | undefined {
  const { driver, stream, kernels } = context;
  const { launch, product, zeros } = node.attributes as Step;
  const { inputs, outputs } = node;
  if (launch) {
    const prepared = kernels.launch(launch.kernel, launch.scalars, launch.defines);
    const pointers = launch.kernel.arguments.flatMap(({ name }, i) => {
      const from = launch.pointers[name];
      return from ? [{ i, value: node[from.from][from.index]! }] : [];
    });
    return {
      bind: (address) => pointers.forEach(({ i, value }) => prepared.set(i, address(value))),
      issue: () => driver.launch(prepared, stream),
    };
  }
  if (product) {
    const products = context.products(), prepared = products.prepare(product);
    const operands = { a: 0n, b: 0n, bias: 0n, d: 0n };
    return {
      bind: (address) => {
        const [a, b, bias] = inputs.map(address);
        Object.assign(operands, { a, b, bias: bias ?? 0n, d: address(outputs[0]!) });
      },
      issue: () => products.launch(prepared, operands, stream),
    };
  }
  if (zeros === undefined) return undefined;
  let at = 0n;
  return {
    bind: (address) => at = address(outputs[0]!),
    issue: () => driver.zero(at, zeros, stream),
  };
}
