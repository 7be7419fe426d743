/** Functions and variables that a test replaces until the end of a block. */

/** Replaces members of an object. */
export function replaced<T extends object>(
  target: T,
  members: Partial<T> & ThisType<T>,
): Disposable {
  const before = Object.keys(members).map((name) => [name, target[name as keyof T]]);
  Object.assign(target, members);
  return { [Symbol.dispose]: () => void Object.assign(target, Object.fromEntries(before)) };
}

/** Sets variables of the environment. */
export function environment(variables: Readonly<Record<string, string>>): Disposable {
  const set = (name: string, value?: string) =>
    value === undefined ? Deno.env.delete(name) : Deno.env.set(name, value);
  const before = Object.keys(variables).map((name) => [name, Deno.env.get(name)] as const);
  for (const [name, value] of Object.entries(variables)) set(name, value);
  return { [Symbol.dispose]: () => before.forEach(([name, value]) => set(name, value)) };
}
