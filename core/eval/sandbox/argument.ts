/**
 * The hidden first argument that makes the program run as a sandbox child. It stands alone here so
 * that the entry point can look for it without loading anything else.
 */

/** First argument of a sandbox child; `child.ts` says what follows. */
export const SANDBOX_ARGUMENT = "--sandbox-child";
