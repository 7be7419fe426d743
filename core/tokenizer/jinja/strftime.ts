/** Dates as Python's `strftime` writes them in the C locale, whatever the machine's. */

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = [
  ..."January February March April May June July August September October November December".split(
    " ",
  ),
];

/** A number and the width that zeros fill. */
type Field = readonly [value: number, width: number];

const NUMBERS: Readonly<Record<string, (date: Date) => Field>> = {
  d: (date) => [date.getDate(), 2],
  H: (date) => [date.getHours(), 2],
  I: (date) => [date.getHours() % 12 || 12, 2],
  M: (date) => [date.getMinutes(), 2],
  m: (date) => [date.getMonth() + 1, 2],
  S: (date) => [date.getSeconds(), 2],
  Y: (date) => [date.getFullYear(), 1],
  y: (date) => [date.getFullYear() % 100, 2],
};

const NAMES: Readonly<Record<string, (date: Date) => string>> = {
  A: (date) => DAYS[date.getDay()]!,
  a: (date) => DAYS[date.getDay()]!.slice(0, 3),
  B: (date) => MONTHS[date.getMonth()]!,
  b: (date) => MONTHS[date.getMonth()]!.slice(0, 3),
  p: (date) => date.getHours() < 12 ? "AM" : "PM",
  "%": () => "%",
};

/** A date by a format, in local time; `%-d` has no zeros, as with glibc. */
export function strftime(date: Date, format: string): string {
  return format.replace(/%(-?)([^]|$)/g, (directive, flag: string, letter: string) => {
    const [value, width] = NUMBERS[letter]?.(date) ?? [];
    if (value !== undefined) return flag ? String(value) : String(value).padStart(width!, "0");
    if (!flag && Object.hasOwn(NAMES, letter)) return NAMES[letter]!(date);
    throw new Error(`'${directive}' of strftime_now is not supported`);
  });
}
