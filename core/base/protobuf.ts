/** Writes protocol buffers: the wire format only, no schema. A message is a list of fields. */
const encoder = new TextEncoder();

/** Memory of small messages that have become part of others: making it anew takes as long as all else. */
const SPARE_BYTES = 1 << 12, spare: Uint8Array<ArrayBuffer>[] = [];

/** Collects the fields of one message. */
export class Message {
  #bytes = spare.pop() ?? new Uint8Array(64);
  #length = 0;

  /** A signed or unsigned integer, or an enum. */
  integer(field: number, value: number | bigint): this {
    this.#varint(field << 3);
    this.#varint(value);
    return this;
  }

  /** A 64-bit float. */
  double(field: number, value: number): this {
    this.#varint(field << 3 | 1);
    this.#append(new Uint8Array(new Float64Array([value]).buffer));
    return this;
  }

  /** A 32-bit float. */
  float(field: number, value: number): this {
    this.#varint(field << 3 | 5);
    this.#append(new Uint8Array(new Float32Array([value]).buffer));
    return this;
  }

  /** A string, bytes or nested message, which ends with that. */
  bytes(field: number, value: string | Uint8Array | Message): this {
    if (typeof value === "string") return this.#text(field, value);
    const bytes = value instanceof Message ? value.finish() : value;
    this.#varint(field << 3 | 2);
    this.#varint(bytes.length);
    this.#append(bytes);
    if (value instanceof Message && bytes.length < SPARE_BYTES) spare.push(value.#bytes);
    return this;
  }

  /** Names are short and plain, and thousands of them take long by the encoder. */
  #text(field: number, text: string): this {
    const { length } = text;
    const start = this.#length;
    this.#varint(field << 3 | 2);
    this.#varint(length);
    this.#reserve(length);
    for (let i = 0; i < length; i++) {
      const code = text.charCodeAt(i);
      if (code > 127) {
        this.#length = start;
        return this.bytes(field, encoder.encode(text));
      }
      this.#bytes[this.#length++] = code;
    }
    return this;
  }

  /** The encoded message, until more is added. */
  finish(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Seven bits a byte, lowest first; negative numbers as 64-bit two's complement. */
  #varint(value: number | bigint): void {
    this.#reserve(10);
    if (typeof value === "number" && value >= 0 && value < 2 ** 31) {
      for (; value > 127; value >>>= 7) this.#bytes[this.#length++] = value & 127 | 128;
      this.#bytes[this.#length++] = value;
    } else {
      let rest = BigInt.asUintN(64, BigInt(value));
      for (; rest > 127n; rest >>= 7n) this.#bytes[this.#length++] = Number(rest & 127n) | 128;
      this.#bytes[this.#length++] = Number(rest);
    }
  }

  #append(bytes: Uint8Array): void {
    this.#reserve(bytes.length);
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  #reserve(count: number): void {
    const least = this.#length + count;
    if (least <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(least, 2 * this.#bytes.length));
    larger.set(this.finish());
    this.#bytes = larger;
  }
}
