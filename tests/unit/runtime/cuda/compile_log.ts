/** Reads the log of NVRTC, or of nvcc with `-Xptxas -v`: they print the same lines about each kernel. */

/** Resources that a thread of a kernel takes: registers, bytes stored for lack of them, bytes of stack. */
export interface KernelUse {
  readonly name: string;
  readonly registers: number;
  readonly spills: number;
  readonly stack: number;
}

/** Parses a log into kernels and performance notes, of which each means that one runs slower than written. */
export function parseCompileLog(log: string): { kernels: KernelUse[]; notes: string[] } {
  // One chunk per kernel: "'name' for 'sm_90a' … 0 bytes stack frame, 0 bytes spill stores … Used 12".
  const kernels = log.split("Compiling entry function ").slice(1).flatMap((chunk) => {
    const found = (pattern: RegExp) => pattern.exec(chunk)?.[1];
    const [name, registers] = [found(/^'([^']+)'/), found(/Used (\d+) registers/)];
    if (!name || !registers) return [];
    const spills = Number(found(/(\d+) bytes spill stores/) ?? 0);
    const stack = Number(found(/(\d+) bytes stack frame/) ?? 0);
    return { name, registers: Number(registers), spills, stack };
  });
  const notes = log.split("\n").filter((line) => /\bC75\d\d\b/.test(line));
  return { kernels, notes: notes.map((note) => note.trim()) };
}
