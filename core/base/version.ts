/** The program's version, read from `deno.json` so that it is written down once. */
import config from "../../deno.json" with { type: "json" };

/** Semantic version of this build. */
export const VERSION: string = config.version;
