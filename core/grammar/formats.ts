/**
 * Patterns of the keyword `format`, for the formats that a pattern says exactly. By the standard the keyword
 * is an annotation: others hold for nothing.
 */

const THIRTY_ONE = String.raw`(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])`;
const THIRTY = String.raw`(?:0[469]|11)-(?:0[1-9]|[12]\d|30)`;
const FEBRUARY = String.raw`02-(?:0[1-9]|1\d|2[0-8])`;
const LEAP_YEAR = String.raw`(?:\d\d(?:0[48]|[2468][048]|[13579][26])|` +
  "(?:[02468][048]|[13579][26])00)";
const DATE = String.raw`(?:\d{4}-(?:${THIRTY_ONE}|${THIRTY}|${FEBRUARY})|${LEAP_YEAR}-02-29)`;
const HOUR = String.raw`(?:[01]\d|2[0-3])`;
const TIME = String.raw`${HOUR}:[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-]${HOUR}:[0-5]\d)`;
const BYTE = String.raw`(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`;
const LABEL = "[A-Za-z0-9](?:[A-Za-z0-9\\-]{0,61}[A-Za-z0-9])?";
const ATOM = "[A-Za-z0-9!#$%&'*+\\/=?^_`{|}~\\-]+";

/** Patterns by format. */
export const FORMATS: ReadonlyMap<string, string> = new Map([
  ["date", DATE],
  ["time", TIME],
  ["date-time", `${DATE}T${TIME}`],
  ["uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"],
  ["ipv4", `${BYTE}(?:\\.${BYTE}){3}`],
  ["email", `${ATOM}(?:\\.${ATOM})*@${LABEL}(?:\\.${LABEL})+`],
].map(([name, pattern]) => [name!, `^${pattern}$`]));
