/** Functions that every template of transformers finds. */
import { timeZone } from "../../base/platform/mod.ts";
import { spendItems } from "./meter.ts";
import { bind, signature } from "./signature.ts";
import { inZone } from "./posix_zone.ts";
import { strftime } from "./strftime.ts";
import { repr, str } from "./text.ts";
import { textOf } from "./text_methods.ts";
import {
  Callable,
  Dict,
  integer,
  iterate,
  type Keywords,
  Namespace,
  PythonError,
  Range,
  Undefined,
  type Value,
} from "./values.ts";

type Given = Value | undefined;

function range(_: null, first: Value, second: Given, third: Value = 1n): Value {
  const step = integer(third);
  const [start, stop] = second === undefined
    ? [0, integer(first)]
    : [integer(first), integer(second)];
  if (step === 0) throw new PythonError("ValueError", "range() arg 3 must not be zero");
  const length = Math.max(0, Math.ceil((stop - start) / step));
  spendItems(length);
  return new Range(Array.from({ length }, (_, i) => BigInt(start + i * step)), start, stop, step);
}

/** Entries of `dict(...)`: a dict or pairs, then names. */
function entriesOf(args: readonly Value[], keywords: Keywords): Dict {
  const dict = new Dict();
  if (args.length > 1) throw new PythonError("TypeError", "dict expected at most 1 argument");
  const [given] = args;
  if (given instanceof Dict) { for (const [key, value] of given.entries()) dict.set(key, value); }
  else if (given !== undefined) {
    for (const pair of iterate(given)) {
      const [key, value, ...rest] = iterate(pair);
      if (key === undefined || value === undefined || rest.length > 0) {
        throw new PythonError("ValueError", "dictionary update sequence element has no length 2");
      }
      dict.set(key, value);
    }
  }
  for (const [name, value] of keywords) dict.set(name, value);
  return dict;
}

function namespace(args: readonly Value[], keywords: Keywords): Namespace {
  const fields = entriesOf(args, keywords).entries().map(([key, value]) =>
    [str(key), value] as const
  );
  for (const [name] of fields) requireFieldName(name);
  return new Namespace(new Map(fields));
}

/** Refuses names that reach into the internals of Python objects. */
export function requireFieldName(name: string): void {
  if (!name.startsWith("_")) return;
  throw new PythonError(
    "SecurityError",
    `a namespace has no attributes that begin with an underscore: ${repr(name)}`,
  );
}

/** A function of Jinja that no known template uses. */
function refused(name: string): Callable {
  return new Callable(name, () => {
    throw new Error(`the function '${name}' is not supported`);
  });
}

/** Global names; `now` is the time that dates are of, in the zone of the environment unless told. */
export function globalNames(now: Date, zone = timeZone() ?? ""): ReadonlyMap<string, Value> {
  const functions = {
    range: bind("range", signature("start stop= step=", range), null),
    dict: new Callable("dict", entriesOf),
    namespace: new Callable("namespace", namespace),
    ...Object.fromEntries(["cycler", "joiner", "lipsum"].map((name) => [name, refused(name)])),
    raise_exception: bind(
      "raise_exception",
      signature("message", (_: null, message: Value) => {
        if (message instanceof Undefined) message.fail();
        throw new Error(str(message));
      }),
      null,
    ),
    strftime_now: bind(
      "strftime_now",
      signature("format", (_: null, format: Value) => strftime(inZone(now, zone), textOf(format))),
      null,
    ),
  };
  return new Map(Object.entries(functions));
}
