/** The values of `parscale compare`, from its flag table. */
import type { commonFlags } from "../flags/common.ts";
import type { Values } from "../flags/table.ts";
import type { compareFlags } from "./flags.ts";

/** Everything the command runs with. */
export type CompareValues =
  & Values<Omit<typeof commonFlags, keyof typeof compareFlags>>
  & Values<typeof compareFlags>
  & { readonly arguments: readonly string[] };
