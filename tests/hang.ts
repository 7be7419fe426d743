/**
 * The guard of tests that must not hang. Work in proportion to its input takes them seconds at most, on a
 * machine with much other work too; work without end, or in proportion to the square, takes far longer.
 */
export const HANG_MS = 120_000;
