/**
 * Reading small files and JSON, and putting the system's errors into the user's terms.
 *
 * Everything that touches the disk in `core/checkpoint` goes through `ioError`, so that a missing
 * file is bad data (exit code 3) while a full disk is the environment's fault (exit code 4).
 */
import { DataError, EnvironmentError, ParscaleError } from "./errors.ts";

/** JSON nested deeper than this is refused: no configuration or header is, and printing it overflows. */
const MAX_JSON_DEPTH = 64;

/** Configuration, index and companion JSON larger than this is not what it claims to be. */
const MAX_JSON_BYTES = 256e6;

type Explanation = readonly [typeof DataError | typeof EnvironmentError, string, string];

const NOT_CAPABLE: Explanation = [
  EnvironmentError,
  "this program may not access it",
  "run with -A or the matching --allow-read or --allow-write",
];

const FULL: Explanation = [
  EnvironmentError,
  "the disk is full",
  "free some space or choose a folder on another disk",
];

const DENIED: Explanation = [
  EnvironmentError,
  "permission denied",
  "change its permissions or choose another folder",
];

/** What the codes of the operating system mean to the user: kind, reason, remedy. */
const SYSTEM_ERRORS: Readonly<Record<string, Explanation>> = {
  ENOENT: [DataError, "found nothing there", "check the path"],
  ENOTDIR: [DataError, "a part of the path is a file, expected a folder", "check the path"],
  EISDIR: [DataError, "found a folder, expected a file", "check the path"],
  ELOOP: [DataError, "its symbolic links go in a circle", "check the path"],
  ENOSPC: FULL,
  EDQUOT: FULL,
  EACCES: DENIED,
  EPERM: DENIED,
  EROFS: [
    EnvironmentError,
    "the file system is read-only",
    "choose a folder you can write to",
  ],
  EMFILE: [EnvironmentError, "too many open files", "raise the limit with ulimit -n"],
};

/** Codes that mean something else when writing: the place is wrong, not the data. */
const WRITE_ERRORS: typeof SYSTEM_ERRORS = {
  ENOENT: [EnvironmentError, "nothing can be made there", "choose another folder"],
  ENOTDIR: [EnvironmentError, "a part of the path is a file", "choose another folder"],
};

/** A JSON object as read, before any field is checked. */
export type JsonObject = Record<string, unknown>;

/** True for `{…}`, false for arrays and null. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A value from a file as it appears in a message: short and on one line. */
export function show(value: unknown): string {
  const text = value === undefined ? "nothing" : JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** Turns an error of the operating system into the one the user can act on. */
export function ioError(action: string, path: string, error: unknown): Error {
  if (error instanceof ParscaleError) return error;
  if (error instanceof DOMException) return error; // an abort or a timeout, not the disk
  const code = (error as { code?: string } | null)?.code ?? "";
  const usual = (action.startsWith("write") ? WRITE_ERRORS[code] : undefined) ??
    SYSTEM_ERRORS[code];
  const known = error instanceof Deno.errors.NotCapable ? NOT_CAPABLE : usual;
  // Without a code or a known class it is no answer of the system but a defect of ours.
  if (!known && code === "" && !(error instanceof Error && error.name in Deno.errors)) {
    return error as Error;
  }
  const [Kind, reason, hint] = known ??
    [EnvironmentError, (error as Error).message, "check the path and the disk it is on"];
  // The system's own text names our temporary files and adds nothing to a reason we know.
  const cause = known ? undefined : error;
  return new Kind(`Cannot ${action} "${path}": ${reason}`, { hints: [hint], cause });
}

/** Like `ioError`, for reading a checkpoint: a file that exists but cannot be read is bad data. */
export function readError(path: string, error: unknown): Error {
  const known = ioError("read", path, error);
  if (!(known instanceof EnvironmentError)) return known;
  if (error instanceof Deno.errors.NotCapable) return known;
  return new DataError(known.message, { hints: known.hints, cause: error });
}

/** What is at a path, or undefined when there is nothing; symbolic links are followed. */
export async function statIfExists(path: string): Promise<Deno.FileInfo | undefined> {
  try {
    return await Deno.stat(path);
  } catch (error) {
    const code = (error as { code?: string }).code;
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw readError(path, error);
  }
}

/** Reads a JSON object; any other content is bad data. */
export async function readJsonObject(path: string): Promise<JsonObject> {
  let bytes: Uint8Array;
  try {
    const { size } = await Deno.stat(path);
    if (size > MAX_JSON_BYTES) {
      throw new DataError(
        `Cannot read "${path}": found ${size} bytes, expected at most ${MAX_JSON_BYTES} of JSON`,
      );
    }
    bytes = await Deno.readFile(path);
  } catch (error) {
    throw readError(path, error);
  }
  return parseJsonObject(bytes, path);
}

/** Parses UTF-8 bytes as one JSON object; `path` names the file in messages. */
export function parseJsonObject(bytes: Uint8Array, path: string): JsonObject {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new DataError(`Cannot read "${path}": found bytes that are not UTF-8, expected JSON`, {
      cause,
    });
  }
  if (jsonDepth(text) > MAX_JSON_DEPTH) {
    throw new DataError(
      `Cannot read "${path}": found JSON nested deeper than ${MAX_JSON_DEPTH} levels, expected a flat object`,
    );
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new DataError(
      `Cannot read "${path}": found ${(cause as Error).message}, expected valid JSON`,
      { cause, hints: ["the file may be cut short or damaged; copy it again"] },
    );
  }
  if (!isObject(value)) {
    throw new DataError(`Cannot read "${path}": found ${show(value)}, expected a JSON object`);
  }
  return value;
}

/** Deepest nesting of brackets outside strings. */
function jsonDepth(text: string): number {
  let depth = 0, deepest = 0, inString = false;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (inString) {
      if (code === 0x5c) i++; // backslash: the next character is escaped
      else if (code === 0x22) inString = false;
    } else if (code === 0x22) inString = true;
    else if (code === 0x7b || code === 0x5b) deepest = Math.max(deepest, ++depth);
    else if (code === 0x7d || code === 0x5d) depth--;
  }
  return deepest;
}

/** Reads exactly `into.length` bytes from `offset` on; a shorter file is bad data. */
export async function readExactly(
  file: Deno.FsFile,
  path: string,
  offset: number,
  into: Uint8Array,
): Promise<void> {
  try {
    file.seekSync(offset, Deno.SeekMode.Start);
    for (let done = 0; done < into.length;) {
      const count = await file.read(into.subarray(done));
      if (count === null) throw endsEarly(path, offset, done, into.length);
      done += count;
    }
  } catch (error) {
    throw readError(path, error);
  }
}

/** Like `readExactly`, on this thread: cheaper where small reads are many. */
export function readExactlySync(
  file: Deno.FsFile,
  path: string,
  offset: number,
  into: Uint8Array,
): void {
  try {
    file.seekSync(offset, Deno.SeekMode.Start);
    for (let done = 0; done < into.length;) {
      const count = file.readSync(into.subarray(done));
      if (count === null) throw endsEarly(path, offset, done, into.length);
      done += count;
    }
  } catch (error) {
    throw readError(path, error);
  }
}

function endsEarly(path: string, offset: number, done: number, expected: number): DataError {
  return new DataError(
    `Cannot read "${path}": found its end at byte ${
      offset + done
    }, expected ${expected} bytes from byte ${offset}`,
    { hints: ["the file was cut short; copy it again"] },
  );
}
