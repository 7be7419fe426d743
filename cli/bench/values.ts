/** The values of `parscale bench`, as its files hand them on. */
import type { commonFlags } from "../flags/common.ts";
import type { Values } from "../flags/table.ts";
import type { benchFlags } from "./flags.ts";

/** Everything the command runs with. */
export type BenchValues =
  & Values<Omit<typeof commonFlags, keyof typeof benchFlags>>
  & Values<typeof benchFlags>
  & { readonly arguments: readonly string[] };
