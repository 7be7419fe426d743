/**
 * The Python sources that every backend runs, as text, so that a compiled program carries them.
 */
import check from "./python/check.py" with { type: "text" };
import compare from "./python/compare.py" with { type: "text" };
import rebuild from "./python/rebuild.py" with { type: "text" };
import runner from "./python/runner.py" with { type: "text" };
import sanitize from "./python/sanitize.py" with { type: "text" };
import values from "./python/values.py" with { type: "text" };

/** Defines `load` and `call`. */
export const RUNNER: string = [values, rebuild, runner].join("\n");

/** Defines `record` and `replay`. */
export const CHECK: string = [values, check].join("\n");

/** Defines `compare`. */
export const COMPARE: string = [values, compare].join("\n");

/** Defines `sanitize`. */
export const SANITIZE: string = sanitize;
