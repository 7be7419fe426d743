/**
 * Curves as text for a terminal: axes, ticks, several series, braille dots. A series is told from the others
 * by its letter, which stands in the curve and at its end; colour only repeats that. The packages at hand
 * were tried and left: `asciichart` has no x axis, `simple-ascii-chart` puts ticks at data values and tells
 * curves apart by colour alone, and neither knows a logarithm. Where curves lie on each other, their letters
 * or colours take turns from column to column.
 */
import { visible } from "./clean.ts";
import { displayWidth } from "./wrap.ts";
import { type Axis, linearAxis, logAxis } from "./ticks.ts";

/** One curve. Points go in order of x; a y that is not finite leaves a gap. */
export interface Series {
  readonly label: string;
  readonly points: readonly (readonly [x: number, y: number])[];
  /** Index of colour and dash; both follow the order of series where absent. */
  readonly style?: { readonly color: number; readonly dash: number };
}

/** Axes of a chart. */
export interface AxisOptions {
  readonly xLabel: string;
  readonly yLabel: string;
  /** A logarithmic x axis; points at or below 0 are left out. */
  readonly logX?: boolean;
  /** A logarithmic y axis; points at or below 0 are left out. */
  readonly logY?: boolean;
}

/** Size and axes of a chart. */
export interface ChartOptions extends AxisOptions {
  /** Columns of the whole text. */
  readonly width: number;
  /** Lines of the plot; axis, labels and legend add to them. */
  readonly height: number;
  /** True if the text may hold colours. */
  readonly color: boolean;
}

/** Foreground colours in the order of series: blue, yellow, cyan, magenta, green, red. */
const COLORS = [34, 33, 36, 35, 32, 31];
/** Bits of a braille character by row and column of its dots. */
const DOTS = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]] as const;
const BRAILLE = 0x2800;
/** Dots of a character. */
const ACROSS = 2, DOWN = 4;
/** Columns between two letters of one curve. */
const LETTER_SPACING = 16;

/** Draws the series; the text ends with a line feed. */
export function renderChart(series: readonly Series[], options: ChartOptions): string {
  const drawn = series.map(({ points }) => points.filter(([x, y]) => isDrawn(x, y, options)));
  const xs = drawn.flat().map(([x]) => x), ys = drawn.flat().map(([, y]) => y);
  if (xs.length === 0) return `${options.yLabel}: no points to draw\n`;
  const rows = Math.max(3, options.height);
  const yAxis = options.logY
    ? logAxis(extent(ys), Math.ceil(rows / 2))
    : linearAxis(extent(ys), Math.ceil(rows / 2), "rounded");
  const gutter = Math.max(...yAxis.ticks.map(({ text }) => text.length));
  // Besides the plot: tick texts, a space, the axis, and the letters at the end of the curves.
  const columns = Math.max(10, options.width - gutter - 2 - series.length);
  const xTicks = Math.max(2, Math.floor(columns / 12));
  const xAxis = options.logX
    ? logAxis(extent(xs), xTicks)
    : linearAxis(extent(xs), xTicks, "exact");

  const canvas = new Canvas(columns, rows);
  series.forEach(({ points }, i) => drawCurve(canvas, points, i, xAxis, yAxis, options));
  const paint = painter(options.color, series);
  const endLetters = lastRows(canvas, drawn, yAxis);
  const tickAt = new Map(yAxis.ticks.map(({ at, text }) => [canvas.rowOf(at), text]));
  const lines = [options.yLabel];
  for (let row = 0; row < rows; row++) {
    const tick = tickAt.get(row);
    const edge = `${(tick ?? "").padStart(gutter)} ${tick === undefined ? "│" : "┤"}`;
    lines.push(
      edge + canvas.line(row, series.length, paint) +
        (endLetters[row] ?? []).map((i) => paint(i)).join(""),
    );
  }
  lines.push(...xAxisLines(xAxis, canvas, gutter, options), ...legend(series, options, paint));
  return lines.map((line) => line.trimEnd() + "\n").join("");
}

type Paint = (series: number, text?: string) => string;

/** The letter of a series, or another text, in the colour of the series. */
function painter(colored: boolean, all: readonly Series[]): Paint {
  return (series, text = letter(series)) => {
    const color = COLORS[(all[series]?.style?.color ?? series) % COLORS.length];
    return colored ? `\x1b[${color}m${text}\x1b[39m` : text;
  };
}

function letter(series: number): string {
  return String.fromCharCode(0x41 + series % 26);
}

/** Returns true if a point has a place on the axes. */
export function isDrawn(x: number, y: number, { logX, logY }: AxisOptions): boolean {
  return Number.isFinite(x) && Number.isFinite(y) && !(logX && x <= 0) && !(logY && y <= 0);
}

/** Smallest and largest value; a loop, since a run has more points than a call has arguments. */
function extent(values: readonly number[]): [number, number] {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return [low, high];
}

/** Lines between neighbouring points. */
function drawCurve(
  canvas: Canvas,
  points: Series["points"],
  series: number,
  xAxis: Axis,
  yAxis: Axis,
  options: ChartOptions,
): void {
  let before: readonly [number, number] | undefined;
  for (const [x, y] of points) {
    const point = isDrawn(x, y, options) ? [xAxis.place(x), yAxis.place(y)] as const : undefined;
    if (point) canvas.drawLine(before ?? point, point, series);
    before = point;
  }
}

/** Series that end in each row, to be named at the right edge. */
function lastRows(canvas: Canvas, drawn: readonly Series["points"][], yAxis: Axis): number[][] {
  const ending: number[][] = [];
  drawn.forEach((points, series) => {
    const last = points.at(-1);
    if (last) (ending[canvas.rowOf(yAxis.place(last[1]))] ??= []).push(series);
  });
  return ending;
}

/** The axis below the plot, its numbers and its label. */
function xAxisLines(
  axis: Axis,
  canvas: Canvas,
  gutter: number,
  { xLabel, width }: ChartOptions,
): string[] {
  const line = Array<string>(canvas.columns).fill("─");
  let numbers = "";
  const left = gutter + 2;
  for (const { at, text } of axis.ticks) {
    const column = canvas.columnOf(at);
    const start = Math.min(left + column - Math.floor(text.length / 2), width - text.length);
    if (numbers !== "" && start <= numbers.length) continue;
    line[column] = "┬";
    numbers = numbers.padEnd(start) + text;
  }
  const label = " ".repeat(left + Math.max(0, (canvas.columns - displayWidth(xLabel)) >> 1));
  return [" ".repeat(gutter + 1) + "└" + line.join(""), numbers, label + xLabel];
}

/** Letter and label of each series, as many on a line as fit. */
function legend(series: readonly Series[], { width }: ChartOptions, paint: Paint): string[] {
  const lines: string[] = [];
  let used = Infinity;
  series.forEach((one, i) => {
    const label = visible(one.label);
    const size = displayWidth(label) + 4;
    const entry = `  ${paint(i)} ${label}`;
    if (used + size > width) lines.push(entry);
    else lines.push(lines.pop() + entry);
    used = (used + size > width ? 0 : used) + size;
  });
  return lines;
}

/** A grid of characters, each of 2 × 4 dots, that knows whose dots they are. */
class Canvas {
  readonly #dots: Uint8Array;
  readonly #owners: Set<number>[];

  constructor(readonly columns: number, readonly rows: number) {
    this.#dots = new Uint8Array(columns * rows);
    this.#owners = Array.from(this.#dots, () => new Set<number>());
  }

  /** Column of a place on the x axis, from 0 to 1. */
  columnOf(place: number): number {
    return Math.floor(Math.round(place * (this.columns * ACROSS - 1)) / ACROSS);
  }

  /** Row of a place on the y axis, from 0 at the bottom to 1. */
  rowOf(place: number): number {
    return Math.floor(Math.round((1 - place) * (this.rows * DOWN - 1)) / DOWN);
  }

  /** Sets the dots from one place to another. */
  drawLine([x0, y0]: readonly number[], [x1, y1]: readonly number[], series: number): void {
    const wide = this.columns * ACROSS - 1, high = this.rows * DOWN - 1;
    const fromX = Math.round(x0! * wide), fromY = Math.round((1 - y0!) * high);
    const toX = Math.round(x1! * wide), toY = Math.round((1 - y1!) * high);
    const steps = Math.max(Math.abs(toX - fromX), Math.abs(toY - fromY), 1);
    for (let i = 0; i <= steps; i++) {
      const x = Math.round(fromX + (toX - fromX) * i / steps);
      const y = Math.round(fromY + (toY - fromY) * i / steps);
      const cell = Math.floor(y / DOWN) * this.columns + Math.floor(x / ACROSS);
      this.#dots[cell]! |= DOTS[y % DOWN]![x % ACROSS]!;
      this.#owners[cell]!.add(series);
    }
  }

  /** One row as text. */
  line(row: number, seriesCount: number, paint: Paint): string {
    let text = "";
    for (let column = 0; column < this.columns; column++) {
      const cell = row * this.columns + column;
      const owners = [...this.#owners[cell]!];
      // The series whose turn it is to show its letter in this column, if it passes here.
      const named = owners.find((series) => this.#isNamed(series, column, seriesCount));
      const shown = named ?? owners[column % owners.length];
      if (shown === undefined) text += " ";
      else if (named !== undefined) text += paint(shown);
      else text += paint(shown, String.fromCharCode(BRAILLE + this.#dots[cell]!));
    }
    return text;
  }

  #isNamed(series: number, column: number, seriesCount: number): boolean {
    const spacing = Math.max(LETTER_SPACING, 2 * seriesCount);
    return column % spacing === Math.floor((series + 0.5) * spacing / seriesCount);
  }
}
