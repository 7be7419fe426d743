/**
 * Teaches TensorFlow.js its own derivatives, which its core for Node leaves out, and the methods of
 * tensors that they call.
 *
 * They lie in the package as modules that only bundlers can load, since they name each other without
 * endings; here the endings are added while they are loaded.
 */
import { registerHooks } from "node:module";
import * as tf from "@tensorflow/tfjs-core";

/** To be called when all packages are loaded, since some bring the same derivatives. */
export async function registerGradients(): Promise<void> {
  const hooks = registerHooks({
    resolve(specifier, { parentURL = "", ...context }, next) {
      const lacksEnding = parentURL.includes("/tfjs-core/dist/") && /^\.\.?\//.test(specifier) &&
        !specifier.endsWith(".js");
      return next(lacksEnding ? `${specifier}.js` : specifier, { ...context, parentURL });
    },
  });
  await import("@tensorflow/tfjs-core/dist/public/chained_ops/register_all_chained_ops.js");
  await import("@tensorflow/tfjs-core/dist/register_all_gradients.js");
  hooks.deregister();

  // Its derivative of repetition ends at four axes. Here only axes of one element are repeated.
  tf.registerGradient({
    kernelName: tf.Tile,
    gradFunc: (upstream, _, attributes) => {
      const repeated = (attributes as unknown as tf.TileAttrs).reps.flatMap((n, axis) =>
        n > 1 ? [axis] : []
      );
      return { x: () => tf.sum(upstream as tf.Tensor, repeated, true) };
    },
  });
}
