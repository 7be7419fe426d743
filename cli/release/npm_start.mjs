#!/usr/bin/env node
// Starts parscale on the deno that its npm package brings. Deno itself fetches the packages that
// parscale imports, at the first start, and keeps them in its own cache.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const deno = createRequire(import.meta.url).resolve("deno/bin.cjs");
const config = ["--config", join(here, "deno.json"), "--lock", join(here, "deno.lock"), "--frozen"];
// TypeScript below a node_modules folder runs only where that folder is not used for imports.
const run = ["run", "-A", "--no-check", "--node-modules-dir=none", ...config, join(here, "mod.ts")];
const child = spawn(process.execPath, [deno, ...run, ...process.argv.slice(2)], {
  stdio: "inherit",
  env: { ...process.env, DENO_NO_UPDATE_CHECK: "1", DENO_NO_PACKAGE_JSON: "1" },
});
// Ctrl-C reaches the whole group; the child decides when to end.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) process.removeAllListeners(name);
  process.kill(process.pid, signal);
});
