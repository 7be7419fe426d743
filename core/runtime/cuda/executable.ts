/**
 * A lowered program as launches on a stream.
 *
 * Takes the program with its memory plan, and tensors by name at each run; returns everything
 * issued in order; the host does not wait, reading a result does.
 *
 * The first run with some tensors launches step by step, which also warms every kernel; the second
 * is captured as a graph, and from then on a run is one launch of that graph. A graph holds
 * addresses, so other tensors, or an arena that has moved, start anew.
 */
import type { MemoryPlan } from "../../graph/memory_plan.ts";
import type { Node, Program } from "../../graph/program.ts";
import type { Value } from "../../graph/value.ts";
import { type Bindings, checkBindings, type Executable, type Weights } from "../device.ts";
import type { DeviceMemory } from "./device_memory.ts";
import type { Driver } from "./driver/driver.ts";
import type { KernelLoader } from "./kernel_loader.ts";
import type { KernelArgument } from "./kernels/define.ts";
import type { LaunchSite } from "./driver/launch.ts";
import type { Lowered, Step } from "./lowered.ts";
import type { Product, Products } from "./driver/cublaslt.ts";
import type { CudaTensor } from "./tensor.ts";
import { boxesOf } from "./driver/tensor_map.ts";

/** What a program runs with. */
export interface ExecutionContext {
  readonly driver: Driver;
  readonly stream: bigint;
  readonly memory: DeviceMemory;
  readonly kernels: KernelLoader;
  /** Graphs that exist. */
  readonly graphs: Set<bigint>;
  readonly products: () => Products;
}

/** What is compiled. */
export interface CompiledProgram {
  /** As it was given, before anything was rewritten. */
  readonly program: Program;
  readonly weights: Weights;
  readonly lowered: Lowered;
  readonly plan: MemoryPlan;
  /** Weights and constants of the lowered program. */
  readonly fixed: ReadonlyMap<string, CudaTensor>;
}

/** One step: how to give it addresses, and how to issue it. */
interface Issue {
  rebind(address: (value: Value) => bigint): void;
  issue(): void;
}

export class CudaExecutable implements Executable {
  readonly #context: ExecutionContext;
  readonly #compiled: CompiledProgram;
  readonly #steps: readonly Issue[];
  /** Name of what is bound to each place outside the arena. */
  readonly #names: ReadonlyMap<string, string>;
  /** Tensors of the last run, kept so that their memory is not returned. */
  #bound = new Map<string, CudaTensor>();
  #generation = -1;
  #runs = 0;
  #graph: bigint | undefined;

  /** Loads what the program needs. */
  constructor(context: ExecutionContext, compiled: CompiledProgram) {
    [this.#context, this.#compiled] = [context, compiled];
    this.#names = placeNames(compiled);
    this.#steps = compiled.lowered.program.nodes.flatMap((node) => {
      const made = this.#step(node);
      return made ? [made] : [];
    });
  }

  run(bindings: Bindings): Promise<void> {
    const { driver, stream, memory } = this.#context;
    memory.reserve(this.#compiled.plan.sections.temporaries);
    if (!this.#isBound(bindings)) this.#bind(bindings as ReadonlyMap<string, CudaTensor>);
    this.#runs++;
    if (this.#runs === 2) {
      this.#graph = driver.capture(stream, () => this.#issue());
      this.#context.graphs.add(this.#graph);
      collected.register(this, { graph: this.#graph, context: this.#context }, this);
    }
    if (this.#graph === undefined) this.#issue();
    else driver.launchGraph(this.#graph, stream);
    return Promise.resolve();
  }

  #issue(): void {
    for (const step of this.#steps) step.issue();
  }

  /** Whether nothing has changed since the last run; asked for every token, so it costs little. */
  #isBound(bindings: Bindings): boolean {
    if (this.#context.memory.generation !== this.#generation) return false;
    for (const [name, tensor] of this.#bound) if (bindings.get(name) !== tensor) return false;
    return true;
  }

  /** Gives every step its addresses. */
  #bind(bindings: ReadonlyMap<string, CudaTensor>): void {
    const { program, weights, fixed, plan } = this.#compiled;
    checkBindings(program, weights, bindings);
    const { memory } = this.#context;
    this.#bound = new Map();
    for (const name of this.#names.values()) {
      if (!fixed.has(name)) this.#bound.set(name, bindings.get(name)!);
    }
    this.#generation = memory.generation;
    this.#runs = 0;
    collected.unregister(this);
    if (this.#graph !== undefined) dropGraph({ graph: this.#graph, context: this.#context });
    this.#graph = undefined;
    const address = (value: Value) => {
      const { section, offset } = plan.placements.get(value)!;
      if (section === "temporaries") return memory.arena + BigInt(offset);
      const name = this.#names.get(`${section}@${offset}`)!;
      return (fixed.get(name) ?? this.#bound.get(name)!).address;
    };
    for (const step of this.#steps) step.rebind(address);
  }

  #step(node: Node): Issue | undefined {
    const { driver, stream, kernels } = this.#context;
    const { launch, product, zeros } = node.attributes as Step;
    if (launch) {
      const site = kernels.site(launch.kernel, launch.numbers, launch.macros);
      const places = launch.kernel.arguments.flatMap(({ name, box }, i) => {
        const from = launch.pointers[name];
        return from ? [{ i, value: node[from.from][from.index]!, box }] : [];
      });
      return launchIssue(site, places, { driver, stream });
    }
    if (product) return this.#productIssue(this.#context.products().prepare(product), node);
    if (zeros === undefined) return undefined; // a view
    let at = 0n;
    return {
      rebind: (address) => at = address(node.outputs[0]!),
      issue: () => driver.zero(at, zeros, stream),
    };
  }

  #productIssue(product: Product, { inputs, outputs }: Node): Issue {
    const products = this.#context.products();
    const operands = { a: 0n, b: 0n, bias: 0n, d: 0n };
    const { stream } = this.#context;
    return {
      rebind: (address) => {
        const [a, b, bias] = inputs.map(address);
        Object.assign(operands, { a, b, bias: bias ?? 0n, d: address(outputs[0]!) });
      },
      issue: () => products.launch(product, operands, stream),
    };
  }
}

interface OwnedGraph {
  readonly graph: bigint;
  readonly context: ExecutionContext;
}

function dropGraph({ graph, context: { graphs, driver } }: OwnedGraph): void {
  if (graphs.delete(graph)) driver.destroyGraph(graph);
}

/** Graphs end with the programs that own them. */
const collected = new FinalizationRegistry<OwnedGraph>((owned) => {
  try {
    dropGraph(owned);
  } catch {
    // After a fault nothing can be freed; the next run reports it.
  }
});

/** An argument that holds an address, or a map of what lies there. */
interface Place {
  readonly i: number;
  readonly value: Value;
  readonly box: KernelArgument["box"];
}

function launchIssue(
  site: LaunchSite,
  places: readonly Place[],
  { driver, stream }: { driver: Driver; stream: bigint },
): Issue {
  const bind = ({ i, value, box }: Place, address: bigint) =>
    site.set(i, box ? driver.encodeTensorMap(boxesOf(value, address, box)) : address);
  return {
    rebind: (address) => places.forEach((each) => bind(each, address(each.value))),
    issue: () => site.launch(driver, stream),
  };
}

/** By section and offset, the name of the tensor that is bound there. */
function placeNames({ lowered, plan }: CompiledProgram): Map<string, string> {
  const { inputs, parameters, state, outputs } = lowered.program;
  const names = new Map<string, string>();
  for (const values of [inputs, parameters, state, outputs]) {
    for (const [name, value] of values) {
      const { section, offset } = plan.placements.get(value)!;
      names.set(`${section}@${offset}`, name);
    }
  }
  return names;
}
