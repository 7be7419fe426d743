/** The values of `parscale cost`, as its files hand them on. */
import type { commonFlags } from "../flags/common.ts";
import type { Values } from "../flags/table.ts";
import type { costFlags } from "./flags.ts";

/** Everything the command runs with. */
export type CostValues =
  & Values<Omit<typeof commonFlags, keyof typeof costFlags>>
  & Values<typeof costFlags>
  & { readonly arguments: readonly string[] };
