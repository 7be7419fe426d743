/** Numbers as people read them. */

/** `1,234,567`. */
export function grouped(value: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: 6 });
}

/** `544 KB`, `2.6 MB`: powers of a thousand, as disks and `ls -h --si` count. */
export function bytesText(bytes: number): string {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let unit = 0;
  let value = bytes;
  for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1000;
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** `1 row`, `2 rows`. */
export function counted(count: number, noun: string): string {
  const ending = noun.endsWith("ch") ? "es" : "s";
  return `${grouped(count)} ${noun}${count === 1 ? "" : ending}`;
}
