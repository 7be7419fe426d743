/** Expressions of JSON objects and arrays: properties in a fixed order, items within bounds of their number. */
import { choice, type Expression, NOTHING, repeat, type Rules, sequence } from "./expression.ts";
import { count, type Fields, refuse } from "./schema_fields.ts";
import { BLANK, member, separated, string, stringExcept } from "./json_text.ts";

/** The properties of an object. */
export interface ObjectShape {
  /** In the order in which they are written. */
  readonly properties: readonly Property[];
  /** Value of properties after those, under other names. */
  readonly additional: Expression;
  /** Those names, where they are not any others. */
  readonly key?: Expression | undefined;
  readonly min: number;
  readonly max: number;
}

interface Property {
  readonly name: string;
  readonly value: Expression;
  readonly isRequired: boolean;
}

/** Most rules of an object: one for each property and number of those before it. */
export const MAX_STATES = 2000;

/** Numbers of properties that an object must tell apart: none or some, or all up to its bounds. */
export function countsOf({ min, max }: Pick<ObjectShape, "min" | "max">): number {
  return (max === Infinity ? Math.max(min, 1) : max) + 1;
}

/** Bounds of the number of properties, where they must be counted; `named` properties have a name. */
export function boundsOf(
  fields: Fields,
  named: number,
  required: number,
  isOpen: boolean,
): { readonly min: number; readonly max: number } {
  let [min, max] = [count(fields, "minProperties", 0), count(fields, "maxProperties", Infinity)];
  if (min > max) refuse("minProperties", 'above "maxProperties"');
  if (min <= required) min = 0;
  if (!isOpen && max >= named) max = Infinity;
  // Of two properties under one name, one counts.
  if (min > 1 && isOpen) refuse("minProperties", "beside additional properties");
  if ((named + 1) * countsOf({ min, max }) > MAX_STATES) {
    const keyword = min > 1 ? "minProperties" : max < Infinity ? "maxProperties" : "properties";
    refuse(keyword, `for more properties than ${MAX_STATES} states count`);
  }
  return { min, max };
}

/**
 * An object. Of two additional properties under one name the last one counts, and both are of the schema.
 *
 * By the number of properties that were written, there is a rule for those that may come next, from each
 * declared one on, and a rule for what may come after it.
 */
export function objectOf(shape: ObjectShape, rules: Rules): Expression {
  const { properties, additional, min, max } = shape;
  const most = countsOf(shape) - 1;
  const key = shape.key ??
    (properties.length === 0 ? string() : stringExcept(properties.map(({ name }) => name)));
  const other = additional === NOTHING ? NOTHING : rules.shared(member(key, additional));
  const counts = Array.from({ length: most + 1 }, (_, count) => count);
  const more = (count: number) => max === Infinity ? Math.min(count + 1, most) : count + 1;
  let mayEnd = true;
  let next = counts.map((count) => additionalFrom(other, count, shape));
  for (const { name, value, isRequired } of properties.toReversed()) {
    const one = rules.shared(member(JSON.stringify(name), value));
    const behind = counts.map((count) =>
      rules.shared(sequence(
        BLANK,
        choice(mayEnd && count >= min ? "}" : NOTHING, sequence(",", BLANK, next[count]!)),
      ))
    );
    next = next.map((without, count) =>
      rules.shared(choice(
        value === NOTHING || more(count) > most ? NOTHING : sequence(one, behind[more(count)]!),
        isRequired ? NOTHING : without,
      ))
    );
    mayEnd &&= !isRequired;
  }
  return sequence("{", BLANK, choice(mayEnd && min === 0 ? "}" : NOTHING, next[0]!));
}

/** At least one additional property after `count` others, and the closing brace. */
function additionalFrom(other: Expression, count: number, { min, max }: ObjectShape): Expression {
  // One suffices where others may come: a greater minimum is refused beside them.
  if (other === NOTHING || count >= max || min > count + 1) return NOTHING;
  return sequence(other, repeat(separated(other), 0, max - count - 1), BLANK, "}");
}

/** The items of an array. */
export interface ArrayShape {
  readonly prefix: readonly Expression[];
  /** Items after those. */
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
