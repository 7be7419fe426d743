/** Parameters of functions that templates call, bound as Python binds them. */
import { Callable, type Keywords, typeError, type Value } from "./values.ts";

/** A function with the names of its parameters; those left out arrive as undefined. */
export interface Signature<Self> {
  readonly parameters: readonly string[];
  /** Number of parameters that must be given. */
  readonly required: number;
  readonly run: (self: Self, ...values: (Value | undefined)[]) => Value;
}

/**
 * A function of `parameters`, given as Python writes them with blanks between: `"old new count="` has
 * one optional parameter.
 */
export function signature<Self, Values extends (Value | undefined)[]>(
  parameters: string,
  run: (self: Self, ...values: Values) => Value,
): Signature<Self> {
  const names = parameters.split(" ").filter((name) => name !== "");
  return {
    parameters: names.map((name) => name.replace("=", "")),
    required: names.filter((name) => !name.endsWith("=")).length,
    run: run as Signature<Self>["run"],
  };
}

/** Calls a function of a signature. @throws {PythonError} for arguments that it does not take */
export function invoke<Self>(
  name: string,
  { parameters, required, run }: Signature<Self>,
  self: Self,
  args: readonly Value[],
  keywords: Keywords,
): Value {
  if (args.length > parameters.length) {
    throw typeError(`${name}() takes ${parameters.length} arguments but ${args.length} were given`);
  }
  const values: (Value | undefined)[] = parameters.map((_, i) => args[i]);
  for (const [key, value] of keywords) {
    const at = parameters.indexOf(key);
    if (at < 0) throw typeError(`${name}() got an unexpected keyword argument '${key}'`);
    if (at < args.length) throw typeError(`${name}() got multiple values for argument '${key}'`);
    values[at] = value;
  }
  const missing = values.findIndex((value, i) => i < required && value === undefined);
  if (missing >= 0) {
    throw typeError(`${name}() missing required argument: '${parameters[missing]}'`);
  }
  return run(self, ...values);
}

/** A method of a value as a function of its own. */
export function bind<Self>(name: string, method: Signature<Self>, self: Self): Callable {
  return new Callable(name, (args, keywords) => invoke(name, method, self, args, keywords));
}
