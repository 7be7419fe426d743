/**
 * Opens the tfjs device on the TensorFlow that the user has installed.
 *
 * The native packages have hundreds of megabytes and need an install script, so they are optional: they are
 * resolved when the device is opened.
 */
import { createRequire } from "node:module";
import util from "node:util";
import { EnvironmentError } from "../../base/errors.ts";
import { TfjsDevice } from "./device.ts";
import type { TensorFlow } from "./storage.ts";

/** Packages that bind TensorFlow's C library, the preferred one first. */
const PACKAGES = ["@tensorflow/tfjs-node-gpu", "@tensorflow/tfjs-node"] as const;

/** The version whose ops the device is tested with. */
const VERSION = "4.22.0";

/** Environment variables that the library reads when it is loaded, unless the user has set them. */
const SETTINGS = {
  TF_CPP_MIN_LOG_LEVEL: "1", // its warnings, not its notes
  NVIDIA_TF32_OVERRIDE: "0", // else products on newer GPUs are rounded to 10 bits
};

/** TensorFlow as a package of the user brings it. */
export interface Binding {
  readonly package: string;
  readonly tf: TensorFlow;
}

/**
 * Opens the device.
 * @throws {EnvironmentError} when no binding is installed or it cannot be loaded
 */
export function openTfjs(): TfjsDevice {
  return new TfjsDevice(findBinding().tf);
}

/** Package and versions of the TensorFlow that is installed. */
export function describeBinding({ package: name, tf }: Binding = findBinding()): string {
  const { binding } = tf.backend() as { binding?: { TF_Version?: string } };
  return `TensorFlow ${binding?.TF_Version ?? "of unknown version"} by ${name} ${tf.version_core}`;
}

/**
 * Loads the first binding there is.
 * @throws {EnvironmentError} when there is none
 */
export function findBinding(): Binding {
  const require = createRequire(import.meta.url);
  let cause: unknown;
  for (const name of PACKAGES) {
    if (!isInstalled(name, require)) continue;
    prepareProcess();
    try {
      const tf: TensorFlow = require(name);
      tf.enableProdMode();
      return { package: name, tf };
    } catch (error) { // most often its install script has not been run
      cause = error;
    }
  }
  throw new EnvironmentError(
    "the tfjs device needs the package @tensorflow/tfjs-node-gpu or @tensorflow/tfjs-node",
    { hints: [remedy(require)], cause },
  );
}

/** Prepares the process for the binding and its library. */
function prepareProcess(): void {
  const old = util as { isNullOrUndefined?: (x: unknown) => boolean }; // has left Node since
  old.isNullOrUndefined ??= (x) => x === null || x === undefined;
  for (const [name, value] of Object.entries(SETTINGS)) {
    if (!Deno.env.has(name)) Deno.env.set(name, value);
  }
}

function isInstalled(name: string, require: NodeJS.Require): boolean {
  try {
    require.resolve(name);
    return true;
  } catch {
    return false;
  }
}

function remedy(require: NodeJS.Require): string {
  const specifier = `npm:${PACKAGES[0]}@${VERSION}`;
  const command = `deno add --allow-scripts=${specifier} ${specifier}`;
  return isInstalled("@tensorflow/tfjs-core", require) // among our sources it lies for tests
    ? `run \`${command}\` in the project folder`
    : `releases take no packages: run \`${command}\` in the project's sources, and parscale there`;
}
