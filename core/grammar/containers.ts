/** Expressions of JSON objects and arrays, whose elements come in one order and so many times. */
import { choice, type Expression, NOTHING, repeat, type Rules, sequence } from "./expression.ts";
import { BLANK, member, separated, string, stringExcept } from "./json_text.ts";

/** The properties of an object. */
export interface ObjectShape {
  /** In the order in which they are written. */
  readonly properties: readonly Property[];
  /** Value of properties behind those, under other names. */
  readonly additional: Expression;
  readonly min: number;
  readonly max: number;
}

interface Property {
  readonly name: string;
  readonly value: Expression;
  readonly isRequired: boolean;
}

/** Most rules of an object: one for each property and number of those before it. */
export const MAX_STATES = 10_000;

/** Numbers of properties that an object must tell apart: none or some, or all up to its bounds. */
export function countsOf({ min, max }: Pick<ObjectShape, "min" | "max">): number {
  return (max === Infinity ? Math.max(min, 1) : max) + 1;
}

/** An object. One of additional properties under the same name replaces the other: both are of the schema. */
export function objectOf(shape: ObjectShape, rules: Rules): Expression {
  const { properties, additional, min, max } = shape;
  const most = countsOf(shape) - 1;
  const key = properties.length === 0 ? string() : stringExcept(properties.map(({ name }) => name));
  const other = additional === NOTHING ? NOTHING : rules.shared(member(key, additional));
  // What may follow behind the last property, by the number of those that were written.
  let follow = Array.from(
    { length: most + 1 },
    (_, count) => rules.shared(additionalOf(other, count, min, max - count)),
  );
  for (const { name, value, isRequired } of properties.toReversed()) {
    const one = rules.shared(member(JSON.stringify(name), value));
    const rest = follow;
    follow = rest.map((without, count) => {
      const written = count === 0 ? one : separated(one);
      const more = count < most ? rest[count + 1]! : max === Infinity ? rest[count]! : NOTHING;
      const present = value === NOTHING || more === NOTHING ? NOTHING : sequence(written, more);
      return rules.shared(choice(present, isRequired ? NOTHING : without));
    });
  }
  return sequence("{", BLANK, follow[0]!);
}

/** Additional properties behind so many others, of which there is room for some, and the end. */
function additionalOf(other: Expression, count: number, min: number, room: number): Expression {
  const others = other === NOTHING
    ? NOTHING
    : repeat(separated(other), 0, room - (count === 0 ? 1 : 0));
  const end = sequence(BLANK, "}");
  if (count > 0) {
    const isEnough = count >= min;
    if (others === NOTHING) return isEnough ? end : NOTHING;
    return isEnough ? sequence(others, end) : sequence(separated(other), others, end);
  }
  const some = others === NOTHING ? NOTHING : sequence(other, others, end);
  return choice(min === 0 ? "}" : NOTHING, some);
}

/** The items of an array. */
export interface ArrayShape {
  readonly prefix: readonly Expression[];
  /** Items behind those. */
  readonly items: Expression;
  readonly min: number;
  readonly max: number;
}

/** An array. */
export function arrayOf({ prefix, items, min, max }: ArrayShape, rules: Rules): Expression {
  const end = (count: number): Expression => count === 0 ? "]" : sequence(BLANK, "]");
  const { length } = prefix;
  let follow = end(length);
  if (max > length && items !== NOTHING) {
    const item = rules.shared(items), more = separated(item);
    const least = Math.max(0, min - length), most = max - length;
    follow = length > 0 ? sequence(repeat(more, least, most), end(length)) : choice(
      min === 0 ? end(0) : NOTHING,
      sequence(item, repeat(more, Math.max(0, least - 1), most - 1), end(1)),
    );
  } else if (min > length) follow = NOTHING;
  for (const [at, value] of [...prefix.entries()].toReversed()) {
    const item = at === 0 ? value : separated(value);
    const present = at >= max || value === NOTHING || follow === NOTHING
      ? NOTHING
      : sequence(item, follow);
    follow = rules.shared(choice(at >= min ? end(at) : NOTHING, present));
  }
  return sequence("[", BLANK, follow);
}
