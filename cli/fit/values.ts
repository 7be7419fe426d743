/** The values of `parscale fit`, as its files hand them on. */
import type { commonFlags } from "../flags/common.ts";
import type { Values } from "../flags/table.ts";
import type { fitFlags } from "./flags.ts";

/** Everything the command runs with. */
export type FitValues =
  & Values<Omit<typeof commonFlags, keyof typeof fitFlags>>
  & Values<typeof fitFlags>
  & { readonly arguments: readonly string[] };
