/** Dates as Python's `strftime` writes them in the C locale, whatever the machine's. */

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = [
  ..."January February March April May June July August September October November December".split(
    " ",
  ),
];

const DAY_MS = 86_400_000;

/** Number of a day since 1970, by the calendar of the local time. */
function dayNumber(date: Date): number {
  return Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) / DAY_MS;
}

function dayOfYear(date: Date): number {
  return dayNumber(date) - Date.UTC(date.getFullYear(), 0, 1) / DAY_MS + 1;
}

/** Year and week of ISO 8601, which are those of the week's Thursday. */
function isoWeek(date: Date): [year: number, week: number] {
  const thursday = dayNumber(date) + 4 - (date.getDay() || 7);
  const year = new Date(thursday * DAY_MS).getUTCFullYear();
  return [year, Math.floor((thursday - Date.UTC(year, 0, 1) / DAY_MS) / 7) + 1];
}

/** A number and the width that zeros or blanks fill. */
type Field = readonly [value: number, width: number, fill?: "0" | " "];

const NUMBERS: Readonly<Record<string, (date: Date) => Field>> = {
  C: (date) => [Math.floor(date.getFullYear() / 100), 2],
  d: (date) => [date.getDate(), 2],
  e: (date) => [date.getDate(), 2, " "],
  f: (date) => [date.getMilliseconds() * 1000, 6],
  G: (date) => [isoWeek(date)[0], 4],
  g: (date) => [isoWeek(date)[0] % 100, 2],
  H: (date) => [date.getHours(), 2],
  I: (date) => [date.getHours() % 12 || 12, 2],
  j: (date) => [dayOfYear(date), 3],
  k: (date) => [date.getHours(), 2, " "],
  l: (date) => [date.getHours() % 12 || 12, 2, " "],
  M: (date) => [date.getMinutes(), 2],
  m: (date) => [date.getMonth() + 1, 2],
  S: (date) => [date.getSeconds(), 2],
  s: (date) => [Math.floor(date.getTime() / 1000), 1],
  U: (date) => [Math.floor((dayOfYear(date) + 6 - date.getDay()) / 7), 2],
  u: (date) => [date.getDay() || 7, 1],
  V: (date) => [isoWeek(date)[1], 2],
  W: (date) => [Math.floor((dayOfYear(date) + 6 - (date.getDay() + 6) % 7) / 7), 2],
  w: (date) => [date.getDay(), 1],
  Y: (date) => [date.getFullYear(), 1],
  y: (date) => [date.getFullYear() % 100, 2],
};

const NAMES: Readonly<Record<string, (date: Date) => string>> = {
  A: (date) => DAYS[date.getDay()]!,
  a: (date) => DAYS[date.getDay()]!.slice(0, 3),
  B: (date) => MONTHS[date.getMonth()]!,
  b: (date) => MONTHS[date.getMonth()]!.slice(0, 3),
  h: (date) => MONTHS[date.getMonth()]!.slice(0, 3),
  n: () => "\n",
  P: (date) => date.getHours() < 12 ? "am" : "pm",
  p: (date) => date.getHours() < 12 ? "AM" : "PM",
  t: () => "\t",
  Z: () => "", // a date without a time zone, as `datetime.now()` is
  z: () => "",
  "%": () => "%",
};

const SHORTHANDS: Readonly<Record<string, string>> = {
  c: "%a %b %e %H:%M:%S %Y",
  D: "%m/%d/%y",
  F: "%Y-%m-%d",
  R: "%H:%M",
  r: "%I:%M:%S %p",
  T: "%H:%M:%S",
  X: "%H:%M:%S",
  x: "%m/%d/%y",
};

/** A date by a format, in local time; flags are those of glibc, and unknown fields stay as they are. */
export function strftime(date: Date, format: string): string {
  return format.replace(/%([-_0^#]?)([a-zA-Z%])/g, (all, flag: string, letter: string) => {
    if (letter in SHORTHANDS) return strftime(date, SHORTHANDS[letter]!);
    if (letter in NUMBERS) return numberText(NUMBERS[letter]!(date), flag);
    const name = NAMES[letter]?.(date);
    if (name === undefined) return all;
    if (flag === "#") return letter === "p" ? name.toLowerCase() : name.toUpperCase();
    return flag === "^" ? name.toUpperCase() : name;
  });
}

function numberText([value, width, fill = "0"]: Field, flag: string): string {
  if (flag === "-") return String(value);
  return String(value).padStart(width, flag === "_" ? " " : flag === "0" ? "0" : fill);
}
