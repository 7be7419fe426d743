/**
 * The entry point of parscale.
 *
 * As the main module it loads the command line and nothing else; imported, it runs nothing.
 *
 * @module
 */
if (import.meta.main) {
  const { runProcess } = await import("./cli/main.ts");
  await runProcess();
}
