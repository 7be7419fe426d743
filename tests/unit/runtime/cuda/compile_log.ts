/**
 * Reads what the device compiler says about each kernel: registers, spills, shared memory.
 *
 * Takes the log of NVRTC or of nvcc with `-Xptxas -v`; they print the same lines; returns one entry
 * per kernel, and all performance notes of the family C75xx, each of which means that a kernel runs
 * slower than written.
 */

/** Resources of one kernel in the compiler's log. */
export interface KernelUse {
  readonly name: string;
  readonly registers: number;
  /** Bytes per thread stored to memory for lack of registers. */
  readonly spills: number;
  /** Bytes of stack per thread, spills included. */
  readonly stack: number;
  /** Bytes of static shared memory. */
  readonly shared: number;
}

/** A log in numbers. */
export interface CompileLog {
  readonly kernels: readonly KernelUse[];
  readonly notes: readonly string[];
}

/** Parses a log. A kernel without a line on registers is left out. */
export function parseCompileLog(log: string): CompileLog {
  const kernels: KernelUse[] = [];
  // One chunk per kernel: "'name' for 'sm_90a' … 0 bytes stack frame, 0 bytes spill stores … Used 12".
  for (const chunk of log.split("Compiling entry function ").slice(1)) {
    const name = /^'([^']+)'/.exec(chunk)?.[1];
    const registers = number(chunk, /Used (\d+) registers/);
    if (!name || registers === undefined) continue;
    kernels.push({
      name,
      registers,
      spills: number(chunk, /(\d+) bytes spill stores/) ?? 0,
      stack: number(chunk, /(\d+) bytes stack frame/) ?? 0,
      shared: number(chunk, /(\d+) bytes smem/) ?? 0,
    });
  }
  const notes = log.split("\n").filter((line) => /\bC75\d\d\b/.test(line)).map((each) =>
    each.trim()
  );
  return { kernels, notes };
}

function number(text: string, pattern: RegExp): number | undefined {
  const found = pattern.exec(text)?.[1];
  return found === undefined ? undefined : Number(found);
}
