/** The values of `parscale eval`, from its flag table. */
import type { commonFlags } from "../flags/common.ts";
import type { Values } from "../flags/table.ts";
import type { evalFlags } from "./flags.ts";

/** Everything the command runs with. */
export type EvalValues =
  & Values<Omit<typeof commonFlags, keyof typeof evalFlags>>
  & Values<typeof evalFlags>
  & { readonly arguments: readonly string[] };
