/**
 * Reading small files and JSON, and putting the system's errors into the user's terms.
 *
 * Everything that touches the disk in `core/checkpoint` goes through `ioError`, so that a missing
 * file is bad data (exit code 3) while a full disk is the environment's fault (exit code 4).
 */
import { parsePythonJson } from "./exact_json.ts";
import { DataError, EnvironmentError, ParscaleError } from "./errors.ts";

/** JSON nested deeper than this is refused: no configuration or header is, and printing it overflows. */
const MAX_JSON_DEPTH = 64;

/** Configuration, index and companion JSON larger than this is not what it claims to be. */
const MAX_JSON_BYTES = 256e6;

/** Files that are read whole and have no narrower limit. */
const MAX_FILE_BYTES = 2 ** 31 - 1;

/** Kind, message and remedy; the message is made of the path and of what was to be done to it. */
type Explanation = readonly [
  typeof DataError | typeof EnvironmentError,
  (path: string, action: string) => string,
  string,
];

/** A message for actions that all fail for the same reason. */
function because(reason: string): (path: string, action: string) => string {
  return (path, action) => `cannot ${action} "${path}": ${reason}`;
}

const NOT_CAPABLE: Explanation = [
  EnvironmentError,
  because("this program may not access it"),
  "run with `-A`, or the matching `--allow-read` or `--allow-write`",
];

const FULL: Explanation = [
  EnvironmentError,
  because("the disk is full"),
  "free some space or choose a folder on another disk",
];

const DENIED: Explanation = [
  EnvironmentError,
  because("permission denied"),
  "change its permissions or choose another folder",
];

/** Meaning of the operating system's error codes to the user. */
const SYSTEM_ERRORS: Readonly<Record<string, Explanation>> = {
  ENOENT: [DataError, (path) => `no such file or folder: "${path}"`, "check the path"],
  ENOTDIR: [DataError, because("part of the path is a file, not a folder"), "check the path"],
  EISDIR: [DataError, (path) => `"${path}" is a folder, not a file`, "check the path"],
  ELOOP: [DataError, because("its symbolic links form a loop"), "check the path"],
  ENOSPC: FULL,
  EDQUOT: FULL,
  EACCES: DENIED,
  EPERM: DENIED,
  EROFS: [
    EnvironmentError,
    because("the file system is read-only"),
    "choose a folder you can write to",
  ],
  EMFILE: [EnvironmentError, because("too many open files"), "raise the limit with `ulimit -n`"],
};

/** Codes that mean something else when writing: the place is wrong, not the data. */
const WRITE_ERRORS: typeof SYSTEM_ERRORS = {
  ENOENT: [EnvironmentError, because("it cannot be created there"), "choose another folder"],
  ENOTDIR: [
    EnvironmentError,
    because("part of the path is a file, not a folder"),
    "choose another folder",
  ],
};

/** A JSON object as read, before any field is checked. */
export type JsonObject = Record<string, unknown>;

/** `JSON.parse`, or `parseExactJson` for what a template writes. */
export type JsonParser = (text: string) => unknown;

/** True for `{…}`, false for arrays and null. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A value from a file as it appears in a message: short and on one line. */
export function show(value: unknown): string {
  const text = value === undefined ? "nothing" : JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/**
 * Turns an error of the operating system into the one the user can act on. `action` completes
 * "cannot … <path>"; it starts with "write" where the place is at fault rather than the data.
 */
export function ioError(action: string, path: string, error: unknown): Error {
  if (error instanceof ParscaleError) return error;
  if (error instanceof DOMException) return error; // an abort or a timeout, not the disk
  const code = (error as { code?: string } | null)?.code ?? "";
  const usual = (action.startsWith("write") ? WRITE_ERRORS[code] : undefined) ??
    SYSTEM_ERRORS[code];
  const known = error instanceof Deno.errors.NotCapable ? NOT_CAPABLE : usual;
  // Without a code or a known class it is a defect of ours, not an answer of the system.
  if (!known && code === "" && !(error instanceof Error && error.name in Deno.errors)) {
    return error as Error;
  }
  const [Kind, message, hint]: Explanation = known ??
    [EnvironmentError, because((error as Error).message), "check the path and the disk it is on"];
  // The system's own text names our temporary files and adds nothing to a reason we know.
  const cause = known ? undefined : error;
  return new Kind(message(path, action), { hints: [hint], cause });
}

/** Like `ioError`, for reading a checkpoint: a file that exists but cannot be read is bad data. */
export function readError(path: string, error: unknown): Error {
  const known = ioError("read", path, error);
  if (!(known instanceof EnvironmentError)) return known;
  if (error instanceof Deno.errors.NotCapable) return known;
  return new DataError(known.message, { hints: known.hints, cause: error });
}

/** Returns what is at a path, or undefined when there is nothing; symbolic links are followed. */
export async function statIfExists(path: string): Promise<Deno.FileInfo | undefined> {
  try {
    return await Deno.stat(path);
  } catch (error) {
    const code = (error as { code?: string }).code;
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw readError(path, error);
  }
}

/**
 * Opens a file that a user named, or that lies in a folder they named. Links are followed; what is then no
 * regular file, or larger than `maxBytes`, is refused before it is opened, since opening a pipe waits for
 * its writer and reading a device or a file of the kernel may never end.
 * @throws {DataError}
 */
export function openRegularFile(path: string, maxBytes = Infinity): Deno.FsFile {
  try {
    requireRegular(path, Deno.statSync(path), maxBytes);
    return Deno.openSync(path);
  } catch (error) {
    throw readError(path, error);
  }
}

/** The bytes of a file that `openRegularFile` opens; no more than it had when it was opened. */
export async function readRegularFile(
  path: string,
  maxBytes = MAX_FILE_BYTES,
): Promise<Uint8Array<ArrayBuffer>> {
  using file = openRegularFile(path, maxBytes);
  const bytes = new Uint8Array(file.statSync().size);
  try {
    for (let done = 0; done < bytes.length;) {
      const count = await file.read(bytes.subarray(done));
      if (count === null) throw endsEarly(path, 0, done, bytes.length);
      done += count;
    }
  } catch (error) {
    throw readError(path, error);
  }
  return bytes;
}

/** The text of a file that `openRegularFile` opens. */
export async function readRegularText(path: string, maxBytes?: number): Promise<string> {
  return utf8Text(await readRegularFile(path, maxBytes), `"${path}"`);
}

const UTF8 = new TextDecoder("utf-8", { fatal: true });

/** Decodes what a user wrote; `name` stands for it in messages. @throws {DataError} */
export function utf8Text(bytes: Uint8Array, name: string): string {
  try {
    return UTF8.decode(bytes);
  } catch {
    throw new DataError(`${name} is not UTF-8 text`, { hints: ["convert it to UTF-8"] });
  }
}

function requireRegular(path: string, info: Deno.FileInfo, maxBytes: number): void {
  if (info.isDirectory) throw new DataError(`"${path}" is a folder, not a file`);
  if (!info.isFile) {
    throw new DataError(`"${path}" is ${kindOf(info)}, not a regular file`, {
      hints: ["pass a regular file, or `-` where standard input is read"],
    });
  }
  if (isOfKernel(path)) {
    throw new DataError(`"${path}" leads to a file of the kernel, not a regular file`);
  }
  if (info.size <= maxBytes) return;
  throw new DataError(
    `"${path}" is too large: ${info.size} bytes, such a file may have at most ${maxBytes}`,
  );
}

/** Returns the kind of a file that cannot be read to its end. */
function kindOf({ isFifo, isSocket, isCharDevice, isBlockDevice }: Deno.FileInfo): string {
  if (isFifo) return "a pipe";
  if (isSocket) return "a socket";
  return isCharDevice || isBlockDevice ? "a device" : "special";
}

/** The path as the system knows it; one that leads nowhere stays as it is. */
export function realPath(path: string): Promise<string> {
  return Deno.realPath(path).catch(() => path);
}

/** Linux calls files below /proc and /sys regular and empty, and they may have any content. */
function isOfKernel(path: string): boolean {
  return /^\/(proc|sys)\//.test(Deno.realPathSync(path));
}

/** Reads a JSON object; any other content is bad data. */
export async function readJsonObject(path: string, parse?: JsonParser): Promise<JsonObject> {
  return parseJsonObject(await readRegularFile(path, MAX_JSON_BYTES), path, undefined, parse);
}

/** The value of a JSON text, read by `parse`; undefined for other text. */
export function jsonValue(text: string, parse: JsonParser = JSON.parse): unknown {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

/** Why `JSON.parse` refused a text, to stand after "is not valid JSON: "; the text is not repeated. */
function jsonReason(error: unknown): string {
  const reason = (error as Error).message.replace(
    /, (\.\.\.)?".*"(\.\.\.)? is not valid JSON$/s,
    "",
  );
  return reason.charAt(0).toLowerCase() + reason.slice(1);
}

/** Parses JSON; `name` stands for it in messages. */
export function parseJson(
  text: string,
  name: string,
  hints: readonly string[] = [],
  parse: JsonParser = JSON.parse,
): unknown {
  try {
    return parsePythonJson(text, parse);
  } catch (error) {
    throw new DataError(`${name} is not valid JSON: ${jsonReason(error)}`, { hints });
  }
}

/** Parses UTF-8 bytes as one JSON object; `name` stands for them in messages. */
export function parseJsonObject(
  bytes: Uint8Array,
  path: string,
  name = `"${path}"`,
  parse: JsonParser = JSON.parse,
): JsonObject {
  const text = utf8Text(bytes, name);
  if (jsonDepth(text) > MAX_JSON_DEPTH) {
    throw new DataError(`${name} nests JSON deeper than ${MAX_JSON_DEPTH} levels`);
  }
  const hints = ["the file may be truncated or damaged; copy it again"];
  const value = parseJson(text, name, hints, parse);
  if (!isObject(value)) throw new DataError(`${name} is not a JSON object: ${show(value)}`);
  return value;
}

/** Deepest nesting of brackets outside strings. */
export function jsonDepth(text: string): number {
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
    `"${path}" is truncated: ${done} bytes at offset ${offset}, expected ${expected}`,
    { hints: ["copy or download the file again"] },
  );
}

/** All pieces in one array. */
export function joinBytes(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let done = 0;
  for (const piece of pieces) {
    joined.set(piece, done);
    done += piece.length;
  }
  return joined;
}

/** Names of the entries in which two objects differ. */
export function differences(a: JsonObject, b: JsonObject): string[] {
  const text = (value: unknown) => JSON.stringify(value) ?? "null";
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...names].filter((name) => text(a[name] ?? null) !== text(b[name] ?? null));
}
