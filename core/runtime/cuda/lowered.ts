/** What a lowered program consists of: launches, but for addresses, and what they are made from. */
import type { Program } from "../../graph/program.ts";
import type { TensorType } from "../../graph/types.ts";
import type { Value } from "../../graph/value.ts";
import type { HostTensor } from "../device.ts";
import type { Kernel, Sizes, Specialisation } from "./kernels/define.ts";
import type { ProductShape } from "./driver/cublaslt.ts";
import type { ElementType } from "./tensor.ts";

/** Where a pointer of a launch comes from. */
export type Pointer = { readonly from: "inputs" | "outputs"; readonly index: number } | null;

/** One kernel launch, but for addresses. */
export interface KernelLaunch {
  readonly kernel: Kernel;
  readonly macros: Specialisation;
  readonly pointers: Readonly<Record<string, Pointer>>;
  readonly numbers: Sizes;
}

/** What a lowered node carries: a launch, a product of the library, or zeros; nothing for a view. */
export type Step = {
  readonly launch?: KernelLaunch;
  readonly product?: ProductShape;
  readonly zeros?: number;
};

/** What a rule says of a launch. */
export interface LaunchSpec {
  readonly reads?: Readonly<Record<string, Value | undefined>>;
  /** Fresh results; undefined where the kernel is not to write one. */
  readonly writes?: Readonly<Record<string, TensorType | undefined>>;
  /** Values that are overwritten where they lie. */
  readonly updates?: Readonly<Record<string, Value>>;
  readonly numbers: Sizes;
  readonly macros?: Specialisation;
  /** The read whose memory the first result may take. */
  readonly reuse?: string;
}

/** A fixed weight in the type in which it is needed. */
export interface WeightUse {
  readonly name: string;
  readonly dtype: ElementType;
}

/** What a lowering may choose where there are several ways; the plain one unless told. */
export interface Choices {
  /** Whether attention of these sizes runs on warpgroups; asked only where it could. */
  readonly wgmma?: (sizes: Sizes) => boolean;
}

/** A program as this device runs it. */
export interface Lowered {
  readonly program: Program;
  /** By the parameters of `program` they are bound to. */
  readonly weights: ReadonlyMap<string, WeightUse>;
  readonly constants: ReadonlyMap<string, HostTensor>;
}
