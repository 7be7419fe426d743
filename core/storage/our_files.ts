/**
 * Recognises folders that parscale wrote, so that `--overwrite` and the removal of leftovers never
 * delete anything else.
 *
 * A folder is ours when every file in it has a name that we write and the files that mark its kind
 * are there. An empty folder is free for any kind.
 */
import { UsageError } from "../base/errors.ts";
import { ioError } from "../base/files.ts";
import { COMPANION_FILES, TEMPLATES_FOLDER } from "../base/companions.ts";

/** Kinds of folders that `--overwrite` may replace. */
export type FolderKind = "checkpoint" | "run" | "evaluation" | "export";

/** Name of what is being written or on its way out, see `leftovers.ts`. */
export const HIDDEN = /^\.(.+)\.(partial|replaced|removed)-(\d+)-[\da-f]{8}$/;

/** Files and subfolders that a folder may hold. */
interface Contents {
  readonly files: RegExp;
  readonly folders?: readonly (readonly [name: RegExp, inside: Contents])[];
}

interface Layout extends Contents {
  /** Name of the kind in messages. */
  readonly name: string;
  /** At least one of the names of every group is there. */
  readonly marks: readonly RegExp[];
}

const COMPANIONS = COMPANION_FILES.map((name) => RegExp.escape(name)).join("|");

const folders = [[new RegExp(`^${TEMPLATES_FOLDER}$`), { files: /\.jinja$/ }]] as const;

const CHECKPOINT: Contents = {
  folders,
  files: new RegExp(
    `^(config\\.json|${COMPANIONS}|README\\.md|` +
      "modeling_parscale\\.py|introduced\\.safetensors|" +
      "model(-\\d{5}-of-\\d{5})?\\.safetensors|model\\.safetensors\\.index\\.json|" +
      "training_state\\.(json|safetensors))$",
  ),
};

const EXPORT: Contents = {
  folders,
  files: new RegExp(
    `^(export\\.json|README\\.md|(prefill|decode)\\.onnx|weights\\.bin|${COMPANIONS})$`,
  ),
};

const TOKENS: Contents = { files: /^(meta\.json|(lengths|targets)\.u32|shard-\d+\.i32)$/ };

const TIME = "\\d{4}-\\d\\d-\\d\\dT\\d\\d-\\d\\d-\\d\\d\\.\\d{6}";

/** Files of an evaluation in the layout of lm-evaluation-harness. */
export const HARNESS_FILES = new RegExp(`^(results_${TIME}\\.json|samples_\\w+_${TIME}\\.jsonl)$`);

const LAYOUTS: Readonly<Record<FolderKind, Layout>> = {
  checkpoint: { name: "a checkpoint", marks: [/^config\.json$/, /\.safetensors$/], ...CHECKPOINT },
  run: {
    name: "a training run",
    marks: [/^\.lock$/],
    files: /^(\.lock|config\.json|metrics\.jsonl|last)$/,
    folders: [
      [
        /^(checkpoint-\d+|\.checkpoint-\d+\.(partial|replaced|removed)-\d+(-[\da-f]+)?)$/,
        CHECKPOINT,
      ],
      [/^tensorboard$/, { files: /^events\.out\.tfevents\./ }],
    ],
  },
  evaluation: {
    name: "an evaluation",
    marks: [/^\.lock$/],
    files: new RegExp(
      "^(\\.lock|config\\.json|(samples|scores|passing|stats)\\.jsonl|results\\.json)$|" +
        HARNESS_FILES.source,
    ),
  },
  export: { name: "an export", marks: [/^export\.json$/], ...EXPORT },
};

/**
 * Throws unless `path`, an existing folder, is empty or one of ours of the given kind.
 * @throws {UsageError} that names the first entry which is not ours
 */
export function requireOurs(path: string, kind: FolderKind): void {
  const layout = LAYOUTS[kind];
  const names = namesIn(path);
  const foreign = findForeign(path, layout);
  const hints = ["choose another `--out`, or remove the folder yourself"];
  if (foreign !== undefined) {
    throw new UsageError(
      `"${path}" holds "${foreign}", which is not part of ${layout.name}: it is not replaced`,
      { hints },
    );
  }
  // A lock that failed leaves no more than the file of the lock.
  if (names.length === 0 || layout.marks.every((mark) => names.some((name) => mark.test(name)))) {
    return;
  }
  throw new UsageError(`"${path}" does not look like ${layout.name}: it is not replaced`, {
    hints,
  });
}

/** Returns whether a hidden folder holds nothing but our files. */
export function holdsOnlyOurs(path: string): boolean {
  return [CHECKPOINT, EXPORT, TOKENS].some((contents) => findForeign(path, contents) === undefined);
}

function findForeign(path: string, { files, folders = [] }: Contents): string | undefined {
  for (const name of namesIn(path)) {
    const { isDirectory } = Deno.lstatSync(`${path}/${name}`);
    if (!isDirectory) {
      if (!files.test(name) && !HIDDEN.test(name)) return name;
      continue;
    }
    const [, inside] = folders.find(([folder]) => folder.test(name)) ?? [];
    if (inside === undefined) return `${name}/`;
    const foreign = findForeign(`${path}/${name}`, inside);
    if (foreign !== undefined) return `${name}/${foreign}`;
  }
}

function namesIn(path: string): string[] {
  try {
    return Array.from(Deno.readDirSync(path), ({ name }) => name).sort();
  } catch (error) {
    throw ioError("read folder", path, error);
  }
}
