/**
 * The library surface of parscale, and its entry point when it is the main module.
 *
 * As the main module it loads the command line and nothing else; imported, it runs nothing.
 *
 * @module
 */
if (import.meta.main) {
  const { runProcess } = await import("./cli/main.ts");
  await runProcess();
}
