/**
 * Finds the npm packages that a release needs: those that `deno.json` imports and what they depend on, less
 * dependencies that are known to be unused. They are found in the installed `node_modules`, in the layout of
 * deno or of npm; nothing is asked of a registry.
 */
import { dirname } from "node:path";
import { DataError, EnvironmentError } from "../../core/base/errors.ts";
import { isImported, isUsed } from "./shipped_files.ts";

/** An installed package. */
export interface Package {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  /** Its real folder. */
  readonly folder: string;
  /** The file that an import of its name loads; some have none. */
  readonly entry: string | undefined;
}

/** Fields that are read of a `package.json`. */
interface About {
  readonly version: string;
  readonly license?: string;
  readonly main?: string;
  readonly exports?: Exports;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

/** One way to load a package, or several by condition. */
type Exports = string | { readonly [condition: string]: Exports } | undefined;

/** All packages that travel, by name. */
export async function npmPackages(root: string): Promise<readonly Package[]> {
  const { imports } = JSON.parse(await Deno.readTextFile(`${root}deno.json`));
  const found = new Map<string, Package>();
  for (const specifier of Object.values<string>(imports)) {
    const name = specifier.match(/^npm:((@[^/]+\/)?[^@/]+)@/)?.[1];
    if (name !== undefined && isImported(name)) await add(name, root, found, true);
  }
  return [...found.values()].sort((a, b) => a.name < b.name ? -1 : 1);
}

async function add(
  name: string,
  from: string,
  found: Map<string, Package>,
  required: boolean,
): Promise<void> {
  const folder = await locate(name, from);
  if (folder === undefined) {
    if (!required) return;
    throw new EnvironmentError(`package "${name}" is not in node_modules`, {
      hints: ["run `deno install` in the project folder"],
    });
  }
  const known = found.get(name);
  if (known?.folder === folder) return;
  const about: About = JSON.parse(await Deno.readTextFile(`${folder}/package.json`));
  if (known !== undefined) {
    throw new DataError(
      `package "${name}" is there as ${known.version} and ${about.version}, expected one ` +
        "version, since packages are shipped in one flat folder",
    );
  }
  const { version, license = "unknown", dependencies = {}, optionalDependencies = {} } = about;
  found.set(name, { name, version, license, folder, entry: entryOf(about) });
  const addAll = async (names: object, required: boolean) => {
    for (const each of Object.keys(names)) {
      if (isUsed(each)) await add(each, folder, found, required);
    }
  };
  await addAll(dependencies, true);
  await addAll(optionalDependencies, false);
}

function entryOf(about: About): string | undefined {
  let entry: Exports = about.exports ?? about.main ?? "index.js";
  while (typeof entry === "object") {
    entry = entry["."] ?? entry.node ?? entry.import ?? entry.default;
  }
  return entry?.replace(/^\.\//, "");
}

/** Looks in every `node_modules` from a folder upwards, as the runtime does. */
async function locate(name: string, from: string): Promise<string | undefined> {
  for (let folder = from;; folder = dirname(folder)) {
    try {
      return await Deno.realPath(`${folder}/node_modules/${name}`);
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
    if (folder === dirname(folder)) return undefined;
  }
}
