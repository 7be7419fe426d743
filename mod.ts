/**
 * The entry point of parscale.
 *
 * As the main module it loads the command line and nothing else; imported, it runs nothing.
 *
 * @module
 */
if (import.meta.main) {
  if (Deno.build.standalone) {
    const { waitForFiles } = await import("./cli/first_start.ts");
    await waitForFiles(new URL(".", import.meta.url));
  }
  // A compiled program is its own sandbox child; see core/eval/code/argument.ts.
  if (Deno.args[0] === "--sandbox-child") {
    await (await import("./core/eval/code/child.ts")).serve();
  } else {
    const { runProcess } = await import("./cli/main.ts");
    await runProcess();
  }
}
