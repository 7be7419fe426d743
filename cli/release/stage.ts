/**
 * Lays out a release as plain files: the project, its packages, one engine. The folder runs with `deno run`,
 * and `deno compile` takes everything from it. Packages are put flat into `node_modules`, without the links
 * of the installed layout, since links are what archives and Windows handle worst. All files carry one date,
 * so equal sources give equal archives.
 */
import { fileURLToPath } from "node:url";
import { DataError, EnvironmentError } from "../../core/base/errors.ts";
import { notices, NOTICES_FILE } from "./notices.ts";
import { setMode } from "../../core/base/platform/mod.ts";
import { npmPackages, type Package } from "./packages.ts";
import type { Platform } from "./platforms.ts";
import { isImported, isShipped, LEFT_BEHIND, SOURCES, UNSEEN } from "./shipped_files.ts";

/** The date of every file: 1 January 2000. */
export const DATE: Date = new Date(Date.UTC(2000, 0, 1));

/** The project's folder. */
export const ROOT: string = fileURLToPath(new URL("../../", import.meta.url));

/** Content of one part of the release. */
export interface Part {
  readonly part: string;
  readonly files: number;
  readonly bytes: number;
}

/** Writes the release for `platform` to the new folder `target` and says what it holds. */
export async function stage(target: string, platform: Platform): Promise<readonly Part[]> {
  await Deno.mkdir(target);
  const packages = await npmPackages(ROOT);
  const copies = [...sourceFiles(), ...packageFiles(packages, platform)];
  const parts = new Map<string, { files: number; bytes: number }>();
  for (const { from, to, part } of copies) {
    const path = `${target}/${to}`;
    await Deno.mkdir(path.slice(0, path.lastIndexOf("/")), { recursive: true });
    await Deno.copyFile(from, path);
    const sum = parts.get(part) ?? { files: 0, bytes: 0 };
    parts.set(part, { files: sum.files + 1, bytes: sum.bytes + (await Deno.stat(path)).size });
  }
  await Deno.writeTextFile(`${target}/deno.json`, await configuration());
  await Deno.writeTextFile(`${target}/${NOTICES_FILE}`, await notices(packages));
  const paths = [...filesIn(target)];
  for (const path of paths) {
    await setMode(`${target}/${path}`, 0o644);
    await Deno.utime(`${target}/${path}`, DATE, DATE);
  }
  requireComplete(paths, platform);
  return [...parts].map(([part, sums]) => ({ part, ...sums }));
}

/** Throws unless these are the files of a whole release for one platform and nothing else. */
export function requireComplete(paths: readonly string[], platform: Platform): void {
  const present = new Set(paths);
  const missing = UNSEEN.filter((path) => !present.has(path));
  const engines = paths.filter((path) => path.includes("/bin/napi-v6/"));
  const unexpected = paths.filter((path) =>
    /^(tests|fixtures|cli\/release)\/|\.d\.[cm]?ts$|\.map$/.test(path)
  );
  const complain = (found: string, expected: string) => {
    throw new DataError(`the release is wrong: found ${found}, expected ${expected}`);
  };
  if (missing.length > 0) complain(`no ${missing.join(", ")}`, "every file that runs in a worker");
  if (engines.length !== 1 || !engines[0]!.endsWith(platform.engine)) {
    complain(`the engines ${engines.join(", ") || "(none)"}`, `${platform.engine} alone`);
  }
  if (unexpected.length > 0) complain(unexpected.join(", "), "only what runs");
}

interface Copy {
  readonly from: string;
  readonly to: string;
  readonly part: string;
}

function sourceFiles(): Copy[] {
  return SOURCES.flatMap((name) => {
    const paths = Deno.statSync(ROOT + name).isDirectory
      ? [...filesIn(ROOT + name)].map((path) => `${name}/${path}`)
      : [name];
    return paths
      .filter((path) => !LEFT_BEHIND.some((folder) => path.startsWith(`${folder}/`)))
      .map((path) => ({ from: ROOT + path, to: path, part: "sources" }));
  });
}

function packageFiles(packages: readonly Package[], { engine }: Platform): Copy[] {
  const copies = packages.flatMap(({ name, folder, entry }) => {
    const paths = [...filesIn(folder)].filter((path) => isShipped(name, path, engine));
    if (entry !== undefined && !paths.some((path) => path === entry || path === `${entry}.js`)) {
      throw new DataError(`the release lacks ${entry}, which loads "${name}"`);
    }
    return paths.map((path) => ({
      from: `${folder}/${path}`,
      to: `node_modules/${name}/${path}`,
      part: path.endsWith(engine) ? "engine" : name === "pyodide" ? "python" : "packages",
    }));
  });
  if (copies.some(({ part }) => part === "engine")) return copies;
  throw new EnvironmentError(`engine ${engine} is not in node_modules`, {
    hints: ["run `deno install` in the project folder"],
  });
}

/** Paths of all files below a folder, sorted. */
export function* filesIn(folder: string, below = ""): Generator<string> {
  const entries = [...Deno.readDirSync(folder)].sort((a, b) => a.name < b.name ? -1 : 1);
  for (const { name, isDirectory } of entries) {
    if (isDirectory) yield* filesIn(`${folder}/${name}`, `${below}${name}/`);
    else yield below + name;
  }
}

/** The project's `deno.json` without what only developers need. */
async function configuration(): Promise<string> {
  const own = JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`));
  const { name, version, license, exports, unstable } = own;
  const imports = Object.fromEntries(
    Object.entries(own.imports).filter(([key]) => isImported(key)),
  );
  const kept = { name, version, license, exports, unstable, imports };
  // A lock file would be written beside the sources, which may be read-only.
  return JSON.stringify({ ...kept, nodeModulesDir: "manual", lock: false }, null, 2) + "\n";
}
