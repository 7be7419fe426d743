/**
 * Writes protocol buffers: the wire format only, no schema.
 *
 * A message is a list of fields; `ONNX`'s field numbers live in `model.ts`, the only user.
 */
const encoder = new TextEncoder();

/** Collects the fields of one message. */
export class Message {
  readonly #parts: Uint8Array[] = [];
  #length = 0;

  /** A signed or unsigned integer, or an enum. */
  integer(field: number, value: number | bigint): this {
    return this.#append(varint(field << 3)).#append(varint(value));
  }

  /** A 32-bit float. */
  float(field: number, value: number): this {
    return this.#append(varint(field << 3 | 5))
      .#append(new Uint8Array(new Float32Array([value]).buffer));
  }

  /** A string, bytes or nested message. */
  bytes(field: number, value: string | Uint8Array | Message): this {
    const bytes = typeof value === "string"
      ? encoder.encode(value)
      : value instanceof Message
      ? value.finish()
      : value;
    return this.#append(varint(field << 3 | 2)).#append(varint(bytes.length)).#append(bytes);
  }

  /** The encoded message. */
  finish(): Uint8Array<ArrayBuffer> {
    const result = new Uint8Array(this.#length);
    let at = 0;
    for (const part of this.#parts) {
      result.set(part, at);
      at += part.length;
    }
    return result;
  }

  #append(part: Uint8Array): this {
    this.#parts.push(part);
    this.#length += part.length;
    return this;
  }
}

/** Seven bits a byte, lowest first; negative numbers as 64-bit two's complement. */
function varint(value: number | bigint): Uint8Array {
  const bytes: number[] = [];
  if (typeof value === "number" && value >= 0 && value < 2 ** 31) {
    for (; value > 127; value >>>= 7) bytes.push(value & 127 | 128);
    bytes.push(value);
  } else {
    let rest = BigInt.asUintN(64, BigInt(value));
    for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
    bytes.push(Number(rest));
  }
  return Uint8Array.from(bytes);
}
