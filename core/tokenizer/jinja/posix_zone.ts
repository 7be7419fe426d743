/** Local time where TZ is a POSIX string, such as `CET-1CEST,M3.5.0,M10.5.0/3`: the runtime takes it for UTC. */

const NAME = "(?:<[^>]+>|[A-Za-z]{3,})", TIME = "[+-]?\\d+(?::\\d+){0,2}";
const ZONE = new RegExp(`^:?${NAME}(${TIME})(?:(${NAME})(${TIME})?(?:,([^,]+),([^,]+))?)?$`);

const DAY_MS = 86_400_000;

/** Returns a date whose local fields are those of the zone; the date itself for names such as Asia/Tokyo. */
export function inZone(date: Date, zone: string): Date {
  // Without rules glibc takes those of the United States.
  const [, base, summer, ahead, start = "M3.2.0", end = "M11.1.0"] = ZONE.exec(zone) ?? [];
  if (base === undefined) return date;
  const now = date.getTime(), standard = -milliseconds(base);
  let offset = standard;
  if (summer !== undefined) {
    const saving = ahead === undefined ? standard + 3_600_000 : -milliseconds(ahead);
    const year = new Date(now + standard).getUTCFullYear();
    const from = changeOf(start, year) - standard, to = changeOf(end, year) - saving;
    // South of the equator summer spans the end of the year.
    if (from < to ? from <= now && now < to : from <= now || now < to) offset = saving;
  }
  return new Date(now + offset + date.getTimezoneOffset() * 60_000);
}

function milliseconds(time: string): number {
  const [hours = 0, minutes = 0, seconds = 0] = time.replace(/^[+-]/, "").split(":").map(Number);
  return (time.startsWith("-") ? -1000 : 1000) * (hours * 3600 + minutes * 60 + seconds);
}

/** The clock when a rule changes it: `Mm.w.d` is a weekday of a week, `Jn` and `n` a day of the year. */
function changeOf(rule: string, year: number): number {
  const [day = "", time = "2"] = rule.split("/");
  const [first = 0, week = 0, weekday = 0] = day.replace(/^[MJ]/, "").split(".").map(Number);
  return dayOf(day, first, week, weekday, year) + milliseconds(time);
}

function dayOf(day: string, first: number, week: number, weekday: number, year: number): number {
  if (day.startsWith("J")) {
    const date = new Date(Date.UTC(2001, 0, first)); // February 29 is never counted
    return Date.UTC(year, date.getUTCMonth(), date.getUTCDate());
  }
  if (!day.startsWith("M")) return Date.UTC(year, 0, 1 + first);
  const start = Date.UTC(year, first - 1, 1), length = Date.UTC(year, first, 1) - start;
  const at = ((weekday - new Date(start).getUTCDay() + 7) % 7 + 7 * (week - 1)) * DAY_MS;
  return start + (at < length ? at : at - 7 * DAY_MS); // week 5 is the last
}
