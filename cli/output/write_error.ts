/** Failed writes in the user's terms: a full disk is the environment's fault, never a defect. */
import { EnvironmentError, UsageError } from "../../core/base/errors.ts";

const REASONS: Readonly<Record<string, readonly [reason: string, hint: string]>> = {
  ENOSPC: ["no space left on device", "free some space, or write to another disk"],
  EDQUOT: ["the disk quota is used up", "free some space, or write to another disk"],
  EFBIG: ["the file would be too large", "write to another disk, or raise the limit of ulimit -f"],
  EROFS: ["the file system is read-only", "write to another folder"],
  EACCES: [
    "permission denied",
    "check the owner and mode of its folder, or name another with --out",
  ],
  EIO: ["the device reports an error or has gone", "check the disk or terminal behind it"],
  ENXIO: ["the device has gone", "check the disk or terminal behind it"],
};

/** Returns whether the operating system refused something; its errors have a code. */
export function isSystemError(error: unknown): error is Error & { code: string } {
  return error instanceof Error && /^E[A-Z0-9]+$/.test((error as { code?: string }).code ?? "");
}

/** Does something for a file that is to be written; the system's errors are told with its path. */
export function orWriteError<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw writeError(`"${path}"`, error);
  }
}

/** The error of a write to `name`, a path or "stdout"; one that is not the system's is returned unchanged. */
export function writeError(name: string, error: unknown): unknown {
  if (!isSystemError(error)) return error;
  if (error.code === "ENOENT") {
    return new UsageError(`cannot write ${name}: its folder does not exist`);
  }
  const [reason, hint] = REASONS[error.code] ?? [error.message, "check the path and the disk"];
  return new EnvironmentError(`cannot write ${name}: ${reason}`, { hints: [hint] });
}
