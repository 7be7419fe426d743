/** Paths in environment variables, which Dockerfiles, `.env` files and systemd units leave unexpanded. */
import { EnvironmentError } from "../errors.ts";
import type { Environment } from "./types.ts";

/**
 * The path in a variable, with `~`, `~user`, `$NAME` and `${NAME}` expanded as Python's `os.path` does;
 * undefined where it is unset or empty.
 * @throws {EnvironmentError} for a home that is not known, where Python would make a folder named `~user`
 */
export function pathIn(env: Environment, name: string, home?: string): string | undefined {
  // A variable that is not set stays as it is written.
  const path = env(name)
    ?.replace(/\$(?:(\w+)|\{([^}=\0]+)\})/g, (text, a, b) => env(a ?? b) ?? text);
  const [tilde, user] = /^~([^/\\]*)/.exec(path ?? "") ?? [];
  if (!path || tilde === undefined) return path || undefined;
  const folder = (user === "" ? home : undefined) ?? accountHome(user);
  if (folder === undefined) {
    throw new EnvironmentError(`${name} begins with "${tilde}", and that home is not known`, {
      hints: [`write the whole path into ${name}`],
    });
  }
  return folder.replace(/\/+$/, "") + path.slice(tilde.length) || "/";
}

/** The folder in a variable of the XDG specification, which has relative ones ignored. */
export function xdgFolder(env: Environment, name: string, home?: string): string | undefined {
  const path = pathIn(env, name, home);
  return path && /^([/\\]|[a-z]:[/\\])/i.test(path) ? path : undefined;
}

/** The home of a user, or of the one who runs this process, in the list of accounts. */
export function accountHome(user?: string): string | undefined {
  try {
    const accounts = Deno.readTextFileSync("/etc/passwd").split("\n").map((line) =>
      line.split(":")
    );
    const uid = user ? undefined : String(Deno.uid());
    return accounts.find(([name, , id]) => uid === undefined ? name === user : id === uid)?.[5];
  } catch {
    return undefined; // not there, or no permission to read it
  }
}
