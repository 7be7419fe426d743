/** The values of `parscale visualize`, as its files hand them on. */
import type { commonFlags } from "../flags/common.ts";
import type { Values } from "../flags/table.ts";
import type { visualizeFlags } from "./flags.ts";

/** Everything the command runs with. */
export type VisualizeValues =
  & Values<Omit<typeof commonFlags, keyof typeof visualizeFlags>>
  & Values<typeof visualizeFlags>
  & { readonly arguments: readonly string[] };
