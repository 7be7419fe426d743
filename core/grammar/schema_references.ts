/** The schemas that `$ref` leads to: by a pointer into the same document (RFC 6901), or by an anchor. */
import { isObject, show } from "../base/files.ts";
import { refuse } from "./schema_fields.ts";

/** Keywords whose value is data. */
const DATA = new Set(["const", "enum", "default", "examples", "example"]);

/** References of one document. */
export class References {
  #anchors: Map<string, unknown> | undefined;

  constructor(readonly root: unknown) {}

  /**
   * The schema that a reference leads to.
   * @throws {DataError} for one that leads nowhere, or into another document
   */
  target(reference: unknown): unknown {
    const text = String(reference);
    if (!text.startsWith("#")) {
      refuse("$ref", `for ${show(reference)}: only "#" and what follows it`);
    }
    const fragment = decoded(text.slice(1));
    if (fragment === undefined) refuse("$ref", `for ${show(reference)}`);
    const found = fragment === "" || fragment!.startsWith("/")
      ? this.#pointed(fragment!)
      : this.#anchored(fragment!);
    if (isObject(found) || typeof found === "boolean") return found;
    return refuse("$ref", `for ${show(reference)}, which does not hold a schema`);
  }

  #pointed(pointer: string): unknown {
    const steps = pointer.split("/").slice(1);
    return steps.reduce<unknown>((value, step) => {
      const key = step.replaceAll("~1", "/").replaceAll("~0", "~");
      const isKnown = typeof value === "object" && value !== null && Object.hasOwn(value, key);
      return isKnown ? (value as Record<string, unknown>)[key] : undefined;
    }, this.root);
  }

  #anchored(name: string): unknown {
    if (!this.#anchors) {
      this.#anchors = new Map();
      this.#collect(this.root);
    }
    return this.#anchors.get(name);
  }

  #collect(value: unknown): void {
    if (Array.isArray(value)) return value.forEach((one) => this.#collect(one));
    if (!isObject(value)) return;
    if (typeof value.$anchor === "string") {
      if (this.#anchors!.has(value.$anchor)) refuse("$anchor", `for ${show(value.$anchor)} twice`);
      this.#anchors!.set(value.$anchor, value);
    }
    for (const [key, one] of Object.entries(value)) if (!DATA.has(key)) this.#collect(one);
  }
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
