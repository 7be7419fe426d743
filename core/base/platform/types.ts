/** Differences between operating systems, one implementation each. */

/** Value of an environment variable. */
export type Environment = (name: string) => string | undefined;

/** Contents of a file; undefined when it cannot be read. */
export type ReadFile = (path: string) => string | undefined;

/** Signals upon which commands save. */
export type EndingSignal = "SIGINT" | "SIGTERM" | "SIGHUP" | "SIGBREAK";

/** Limits of the control group of this process; infinite where it sets no limit. */
export interface GroupLimits {
  /** Cores that the quota of processor time amounts to. */
  readonly cores: number;
  /** Bytes of memory that all processes of the group may hold. */
  readonly memory: number;
  /** Bytes of it that are still free. */
  readonly freeMemory: number;
}

/** Limits where there are no control groups. */
export const NO_LIMITS: GroupLimits = { cores: Infinity, memory: Infinity, freeMemory: Infinity };

/** The C library and the constants that a mapping of memory takes; they differ between kernels. */
export interface PosixNames {
  readonly libc: string;
  readonly anonymous: number;
  /** Advice to `madvise`; absent where the kernel has none with this effect. */
  readonly dropPages?: number;
  readonly hugePages?: number;
  /** Option of `mallopt` for the size from which a block is mapped on its own; glibc has it. */
  readonly mappedBlocks?: number;
}

/** One operating system. */
export interface Platform {
  readonly name: "linux" | "macos" | "windows";
  /** Absent where memory is mapped by other calls than `mmap`. */
  readonly posix?: PosixNames;
  /** A POSIX shell; absent where the system has none. */
  readonly shell?: string;
  /** Signals that can be listened to. */
  readonly endingSignals: readonly EndingSignal[];
  /** Variables without which a child process does not find its cache or its system libraries. */
  readonly childVariables: readonly string[];
  /** True if files have permission bits. */
  readonly hasModes: boolean;
  /** The user's home. */
  home(env: Environment): string | undefined;
  /** The user's folder of caches; undefined without a home. */
  caches(env: Environment): string | undefined;
  /** The folder of temporary files. */
  temporary(env: Environment): string;
  /** Limits of the control groups of this process. */
  limits(read: ReadFile): GroupLimits;
  /** Most memory this process has held so far, in bytes; null where the system does not say. */
  peakMemory(read: ReadFile): number | null;
  /** Returns whether this process was started with SIGHUP ignored, as by `nohup`. */
  ignoresHangup(read: ReadFile): boolean;
  /** Returns whether a failed rename may succeed a moment later. */
  isPassing(error: unknown): boolean;
  /** Returns whether the rename of a folder failed since another has its name. */
  isTaken(error: unknown): boolean;
}

/** The error code of the operating system; empty for other errors. */
export function codeOf(error: unknown): string {
  return (error as { code?: string } | null)?.code ?? "";
}
