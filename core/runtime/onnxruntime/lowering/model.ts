/**
 * Writes an ONNX model: nodes, inputs, outputs, small constants and placeholders for weights.
 *
 * Inputs and outputs are declared with their rank but no sizes: a model is written once for all sizes
 * (see `lower.ts`). Field numbers are those of onnx.proto.
 */
import { basename } from "node:path";
import { ONNX_TYPE, type OnnxType } from "../element_types.ts";
import { Message } from "../../../base/protobuf.ts";
import { onnxRuntimePath } from "../capi/library.ts";

/** Domain of the library's own operators. */
export const CONTRIB = "com.microsoft";

const OPSETS = [["", 24], [CONTRIB, 1]] as const;

/** The one that ONNX 1.19 introduced together with opset 24. */
const IR_VERSION = 12;

/** Values of node attributes: whole numbers are ints, `{ float }` is a float. */
export type NodeAttribute = number | readonly number[] | { readonly float: number } | string;

/** Place of a weight's bytes: the keys are those of the format. */
export interface FilePlace {
  /** File beside the model. */
  readonly location: string;
  readonly offset: number;
  readonly length: number;
}

interface Node {
  readonly message: Message;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
}

/** A model under construction. Tensors are named by strings, as in ONNX. */
export class OnnxModel {
  readonly #graph = new Message();
  readonly #nodes: Node[] = [];

  /** `placeholder` is a file that exists beside the model; the library's own unless told. */
  constructor(private readonly placeholder: string = basename(onnxRuntimePath())) {
  }

  /** Adds a node and returns the name of its first output; `others` are those of the following ones. */
  node(
    type: string,
    inputs: readonly string[],
    attributes: Readonly<Record<string, NodeAttribute>> = {},
    { domain = "", output = `n${this.#nodes.length}`, others = [] as readonly string[] } = {},
  ): string {
    const message = new Message(), outputs = [output, ...others];
    inputs.forEach((name) => message.bytes(1, name));
    outputs.forEach((name) => message.bytes(2, name));
    message.bytes(3, `${type}.${this.#nodes.length}`).bytes(4, type);
    for (const [name, value] of Object.entries(attributes)) {
      message.bytes(5, attribute(name, value));
    }
    if (domain) message.bytes(7, domain);
    this.#nodes.push({ message, inputs, outputs });
    return output;
  }

  /** Adds a constant whose elements are stored in the model. */
  constant(name: string, type: OnnxType, shape: readonly number[], data: ArrayBufferView): string {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    this.#graph.bytes(5, tensor(name, type, shape).bytes(9, bytes));
    return name;
  }

  /**
   * Declares a weight that lies in a file; without one it is given as an initializer when the session
   * is made. The format wants a file that exists even so: the placeholder, from which nothing is read.
   */
  weight(name: string, type: OnnxType, shape: readonly number[], place?: FilePlace): string {
    const external = 1;
    const message = tensor(name, type, shape);
    for (const [key, value] of Object.entries(place ?? { location: this.placeholder })) {
      message.bytes(13, new Message().bytes(1, key).bytes(2, String(value)));
    }
    this.#graph.bytes(5, message.integer(14, external));
    return name;
  }

  /** Declares an input; a size that is undefined may be any. */
  input(name: string, type: OnnxType, sizes: readonly (number | undefined)[]): string {
    this.#graph.bytes(11, valueInfo(name, type, sizes));
    return name;
  }

  /** Declares an output; a size that is undefined may be any. */
  output(name: string, type: OnnxType, sizes: readonly (number | undefined)[]): void {
    this.#graph.bytes(12, valueInfo(name, type, sizes));
  }

  /**
   * The bytes of the ONNX file. A file for others has its nodes `sorted`, as the format asks. For sessions of
   * our own they are written last to first: the library searches backwards from the unread results, those
   * with the largest number first, and runs what each of them needs, again the largest number first. So they
   * run in the order in which they were added, as late as that allows; the other way round, gradients of
   * weights would come after everything else and keep all activations alive.
   */
  finish({ sorted = false }: { readonly sorted?: boolean } = {}): Uint8Array<ArrayBuffer> {
    const nodes = sorted ? this.#sorted() : this.#nodes.toReversed();
    for (const { message } of nodes) this.#graph.bytes(1, message);
    const model = new Message().integer(1, IR_VERSION).bytes(2, "parscale");
    model.bytes(7, this.#graph.bytes(2, "program"));
    for (const [domain, version] of OPSETS) {
      model.bytes(8, new Message().bytes(1, domain).integer(2, version));
    }
    return model.finish();
  }

  /** Nodes in the order in which they were added, each after those whose results it reads. */
  #sorted(): Iterable<Node> {
    const makers = new Map(this.#nodes.flatMap((node) => node.outputs.map((name) => [name, node])));
    makers.delete(""); // an output that is left out
    const sorted = new Set<Node>();
    const add = (node: Node | undefined) => {
      if (node === undefined || sorted.has(node)) return;
      for (const name of node.inputs) add(makers.get(name));
      sorted.add(node);
    };
    this.#nodes.forEach(add);
    return sorted;
  }
}

function tensor(name: string, type: OnnxType, shape: readonly number[]): Message {
  const message = new Message();
  shape.forEach((size) => message.integer(1, size));
  return message.integer(2, ONNX_TYPE[type]).bytes(8, name);
}

function valueInfo(name: string, type: OnnxType, sizes: readonly (number | undefined)[]): Message {
  const shape = new Message();
  for (const size of sizes) {
    shape.bytes(1, size === undefined ? new Message() : new Message().integer(1, size));
  }
  const tensorType = new Message().integer(1, ONNX_TYPE[type]).bytes(2, shape);
  return new Message().bytes(1, name).bytes(2, new Message().bytes(1, tensorType));
}

function attribute(name: string, value: NodeAttribute): Message {
  const message = new Message().bytes(1, name);
  const [float, int, text, ints] = [1, 2, 3, 7];
  if (typeof value === "number") return message.integer(3, value).integer(20, int);
  if (typeof value === "string") return message.bytes(4, value).integer(20, text);
  if ("float" in value) return message.float(2, value.float).integer(20, float);
  value.forEach((item) => message.integer(8, item));
  return message.integer(20, ints);
}
