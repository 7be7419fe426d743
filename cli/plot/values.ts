/** The values of `parscale plot`, as its files hand them on. */
import type { commonFlags } from "../flags/common.ts";
import type { Values } from "../flags/table.ts";
import type { plotFlags } from "./flags.ts";

/** Everything the command runs with. */
export type PlotValues =
  & Values<Omit<typeof commonFlags, keyof typeof plotFlags>>
  & Values<typeof plotFlags>
  & { readonly arguments: readonly string[] };
