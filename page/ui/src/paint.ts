// Drawing on a canvas: colors of the page's style, hatches, columns of exact sums, rectangles of events.

import { firstFrom, GAP_END, visitChunk, type Curve, type Lane, type Page } from "./data";
import { quantity } from "./format";
import { blocks } from "./modules";
import type { Sums } from "./sums";
import type { View } from "./view";

/** Maximum number of rectangles of a lane; beyond it, columns of sums are drawn. */
const MOST_EVENTS = 4_000;
/** Maximum number of segments that are summed for a picture. */
const MOST_SUMMED = 60_000;
const LEAST_TEXT = 40;
/** Index of the color of ranges and modules. */
const RANGE = 8;

/** Colors of kinds of names (see names.rs): computing, communicating, copy, memset, then calls. */
const KINDS = [
  "gpu_compute", "communication", "copy", "copy", "launch", "sync", "allocator", "no_work", "data_loading", "host_cpu",
];
/** State of a sample: running, or any other. */
const RUNNING = 1;

export interface Colors {
  ground: string;
  panel: string;
  text: string;
  quiet: string;
  line: string;
  accent: string;
  causes: string[];
  hatches: (CanvasPattern | string)[];
  kinds: string[];
}

export function colors(page: Page, context: CanvasRenderingContext2D): Colors {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const causes = page.manifest.causes.map((cause) => of(cause.name));
  return {
    ground: of("ground"), panel: of("panel"), text: of("text"), quiet: of("quiet"), line: of("line"),
    accent: of("accent"), causes, kinds: KINDS.map(of),
    hatches: causes.map((color, index) => hatch(context, color, of("hatch"), index, page.manifest.causes[index]!.name)),
  };
}

/** The same hatches as in the static charts: lines with a direction and distance for each cause. */
function hatch(
  context: CanvasRenderingContext2D,
  color: string,
  line: string,
  index: number,
  name: string,
): CanvasPattern | string {
  if (name === "gpu_compute") return color;
  const size = index < 5 ? 8 : 5;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const draw = tile.getContext("2d")!;
  draw.fillStyle = color;
  draw.fillRect(0, 0, size, size);
  draw.strokeStyle = line;
  draw.lineWidth = 1.2;
  draw.beginPath();
  const stroke = (a: number, b: number, c: number, d: number) => {
    draw.moveTo(a * size, b * size);
    draw.lineTo(c * size, d * size);
  };
  const direction = index % 5;
  if (direction === 0 || direction === 4) stroke(0, 1, 1, 0);
  if (direction === 1 || direction === 4) stroke(0, 0, 1, 1);
  if (direction === 2) stroke(0, 0.5, 1, 0.5);
  if (direction === 3) stroke(0.5, 0, 0.5, 1);
  draw.stroke();
  return context.createPattern(tile, "repeat") ?? color;
}

/** Position of a lane on the canvas. */
export interface Place {
  context: CanvasRenderingContext2D;
  colors: Colors;
  view: View;
  left: number;
  width: number;
  top: number;
  height: number;
}

const scale = ({ view, width }: Place) => width / (view.to - view.from);

/** Time by cause in each pixel column: stacked in proportion to the causes' shares. */
export function columns(page: Page, sums: Sums, place: Place, leafOnly: number): void {
  const { view, width } = place;
  const perPixel = (view.to - view.from) / width;
  const order = stacked(page, [...sums.running.keys()]);
  const step = Math.max(1, Math.ceil(sums.span / perPixel));
  let begin = sums.border(view.from);
  for (let x = 0; x < width; ) {
    const end = Math.max(begin + 1, sums.border(view.from + Math.min(width, x + step) * perPixel));
    if (begin >= sums.intervals) break;
    const last = Math.min(end, sums.intervals);
    const [x0, x1] = [begin, last].map((border) => Math.round((border * sums.span - view.from) / perPixel));
    const length = (last - begin) * sums.span;
    column(page, place, [Math.max(0, x0!), Math.min(width, x1!)], order, leafOnly,
      (leaf) => sums.between(leaf, begin, last) / length);
    begin = last;
    x = Math.max(x + 1, Math.ceil(x1!));
  }
}

/** Leaves in the order of a column: causes are adjacent, with the device's work at the bottom. */
function stacked(page: Page, leaves: number[]): number[] {
  const words = page.manifest.leaves;
  const rank = (leaf: number) => (words[leaf]!.busy ? 0 : 100) + words[leaf]!.cause;
  return leaves.sort((a, b) => rank(a) - rank(b) || a - b);
}

/** Draws a column from the share of each leaf. */
function column(
  page: Page, place: Place, [x0, x1]: [number, number], order: number[], leafOnly: number, share: (leaf: number) => number,
): void {
  const { context, colors: of, left, top, height } = place;
  let y = top + height;
  let run = 0;
  let cause = -1;
  const flush = () => {
    if (cause < 0 || run <= 0) return;
    y -= run;
    context.fillStyle = of.causes[cause]!;
    context.fillRect(left + x0, y, x1 - x0, run);
  };
  for (const leaf of order) {
    const part = share(leaf);
    if (part === 0 || (leafOnly >= 0 && leaf !== leafOnly)) continue;
    const now = page.manifest.leaves[leaf]!.cause;
    if (now !== cause) {
      flush();
      [cause, run] = [now, 0];
    }
    run += part * height;
  }
  flush();
}

/** Draws columns from segments, where intervals of sums are wider than a pixel; returns false as `segments` does. */
export function pixels(page: Page, lane: Lane, place: Place, leafOnly: number): boolean {
  const { view } = place;
  if (!page.whole(lane, view.from, view.to) || page.estimate(lane, view.from, view.to) > MOST_SUMMED) return false;
  const width = Math.ceil(place.width);
  const perPixel = (view.to - view.from) / place.width;
  const words = page.manifest.leaves.length;
  const shares = new Float64Array(width * words);
  for (const index of page.chunksIn(lane, view.from, view.to)) {
    const events = page.peek(lane, index);
    if (!events) return false;
    visitChunk(events, view.from, view.to, (_, i) => {
      const leaf = events.values[0]![i]! % GAP_END;
      const begin = Math.max(0, (events.begin[i]! - view.from) / perPixel);
      const end = Math.min(width, (events.begin[i]! + events.duration[i]! - view.from) / perPixel);
      for (let x = Math.floor(begin); x < end; x++) {
        shares[x * words + leaf]! += Math.min(end, x + 1) - Math.max(begin, x);
      }
    });
  }
  const order = stacked(page, page.manifest.leaves.map((_, leaf) => leaf));
  for (let x = 0; x < width; x++) column(page, place, [x, x + 1], order, leafOnly, (leaf) => shares[x * words + leaf]!);
  return true;
}

/** Mean of the known values of a curve between two times; NaN without any. */
export function meanOf({ values, span_ns: span }: Curve, from: number, to: number): number {
  const first = Math.min(values.length - 1, Math.floor(from / span));
  const last = Math.max(first + 1, Math.min(values.length, Math.floor(to / span)));
  let [sum, known] = [0, 0];
  for (let i = first; i < last; i++) {
    if (Number.isNaN(values[i]!)) continue;
    sum += values[i]!;
    known++;
  }
  return known ? sum / known : NaN;
}

/** Scale of a curve, in words. Percentages have a fixed one, so that rows can be compared. */
const scaleOf = (of: Curve) => (of.unit === "%" ? 100 : of.most || 1);
/** True if the names of rows leave room for it. */
export const hasScale = (left: number) => left > 120;
export const most = (of: Curve) => quantity(scaleOf(of), of.unit);

/** `text` cut to a width in its middle: numbers at the end tell names apart. */
export function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  const fits = (cut: string) => context.measureText(cut).width <= width;
  if (fits(text)) return text;
  const end = width < 60 ? "" : text.slice(-6);
  let [short, long] = [0, text.length - end.length];
  while (short < long) {
    const middle = (short + long + 1) >> 1;
    if (fits(`${text.slice(0, middle)}…${end}`)) short = middle;
    else long = middle - 1;
  }
  return `${text.slice(0, short)}…${end}`;
}

/** Draws a curve as an area, with its largest value. */
export function curve(of: Curve, place: Place): void {
  const { context, colors, view, left, width, top, height } = place;
  const perPixel = (view.to - view.from) / width;
  const largest = scaleOf(of);
  context.fillStyle = colors.accent;
  for (let x = 0; x < width; x++) {
    const value = meanOf(of, view.from + x * perPixel, view.from + (x + 1) * perPixel);
    if (!(value > 0)) continue;
    const high = Math.max(0.5, (Math.min(value, largest) / largest) * height);
    context.globalAlpha = 0.45;
    context.fillRect(left + x, top + height - high, 1, high);
    context.globalAlpha = 1;
    context.fillRect(left + x, top + height - high, 1, 1.5);
  }
  context.fillStyle = colors.quiet;
  context.textAlign = "right";
  if (hasScale(left)) context.fillText(most(of), left - 4, top + height / 2);
  context.textAlign = "left";
}

/** Draws the busy share of each pixel column of a lane, by kind. */
export function density(sums: Sums, place: Place): void {
  const { context, colors: of, view, left, width, top, height } = place;
  const perPixel = (view.to - view.from) / width;
  for (let x = 0; x < width; x++) {
    const begin = Math.min(sums.intervals - 1, Math.floor((view.from + x * perPixel) / sums.span));
    const end = Math.max(begin + 1, Math.floor((view.from + (x + 1) * perPixel) / sums.span));
    let y = top + height;
    for (const key of sums.running.keys()) {
      const part = sums.between(key, begin, Math.min(end, sums.intervals)) / ((end - begin) * sums.span);
      if (part <= 0) continue;
      const high = Math.min(y - top, part * height);
      y -= high;
      context.fillStyle = of.kinds[key]!;
      context.fillRect(left + x, y, 1, high);
    }
  }
}

/** Draws the segments of a device; returns false if there are too many or they are not loaded. */
export function segments(page: Page, lane: Lane, place: Place, leafOnly: number): boolean {
  const { context, colors: of, view, left, width, top, height } = place;
  if (!page.whole(lane, view.from, view.to) || page.estimate(lane, view.from, view.to) > MOST_EVENTS) return false;
  const { leaves, causes } = page.manifest;
  let all = true;
  for (const index of page.chunksIn(lane, view.from, view.to)) {
    const events = page.peek(lane, index);
    if (!events) {
      all = false;
      continue;
    }
    visitChunk(events, view.from, view.to, (_, i) => {
      const leaf = events.values[0]![i]! % GAP_END;
      const x0 = Math.max(0, (events.begin[i]! - view.from) * scale(place));
      const x1 = Math.min(width, (events.begin[i]! + events.duration[i]! - view.from) * scale(place));
      const { cause, busy } = leaves[leaf]!;
      context.globalAlpha = leafOnly < 0 || leaf === leafOnly ? 1 : 0.15;
      context.fillStyle = busy || x1 - x0 < 3 ? of.causes[cause]! : of.hatches[cause]!;
      context.fillRect(left + x0, top, Math.max(x1 - x0, 0.3), height);
      if (x1 - x0 > LEAST_TEXT && !busy) {
        label(place, left + x0, x1 - x0, `${causes[cause]!.mark} ${leaves[leaf]!.words}`);
      }
    });
  }
  context.globalAlpha = 1;
  return all;
}

/** Draws events with their names; returns true on success. */
export function events(page: Page, lane: Lane, place: Place, nameOnly: number, levels: number): boolean {
  const { context, colors: of, view, left, width, top, height } = place;
  if (!page.whole(lane, view.from, view.to) || page.estimate(lane, view.from, view.to) > MOST_EVENTS) return false;
  let all = true;
  const high = height / levels;
  for (const index of page.chunksIn(lane, view.from, view.to)) {
    const found = page.peek(lane, index);
    if (!found) {
      all = false;
      continue;
    }
    visitChunk(found, view.from, view.to, (_, i) => {
      const x0 = Math.max(0, (found.begin[i]! - view.from) * scale(place));
      const x1 = Math.min(width, (found.begin[i]! + found.duration[i]! - view.from) * scale(place));
      const level = levels > 1 ? Math.min(found.values[1]![i]!, levels - 1) : 0;
      const name = found.values[0]![i]!;
      const y = top + level * high;
      if (lane.kind === "samples") {
        context.fillStyle = found.values[3]![i] === RUNNING ? of.causes[1]! : of.quiet;
        context.fillRect(left + x1 - 1, y, Math.max(1, Math.min(3, x1 - x0)), high);
        return;
      }
      context.globalAlpha = nameOnly === 0 || name === nameOnly ? 1 : 0.15;
      context.fillStyle = of.kinds[page.kind(name)]!;
      context.fillRect(left + x0, y, Math.max(x1 - x0 - (x1 - x0 > 4 ? 1 : 0), 0.5), high - 1);
      if (x1 - x0 > LEAST_TEXT) {
        label({ ...place, top: y, height: high }, left + x0, x1 - x0, page.name(name));
      }
    });
  }
  context.globalAlpha = 1;
  return all;
}

/** Draws the modules that captured the work of a stream; returns true on success. */
export function modules(page: Page, lane: Lane, place: Place, nameOnly: number): boolean {
  const { context, colors: of, view, left, width, top, height } = place;
  if (!page.whole(lane, view.from, view.to) || page.estimate(lane, view.from, view.to) > MOST_EVENTS) return false;
  let all = true;
  for (const index of page.chunksIn(lane, view.from, view.to)) {
    const found = page.peek(lane, index);
    if (!found) {
      all = false;
      continue;
    }
    for (const block of blocks(page, found, view.from, view.to)) {
      const x0 = Math.max(0, (block.from - view.from) * scale(place));
      const x1 = Math.min(width, (block.to - view.from) * scale(place));
      context.globalAlpha = nameOnly === 0 || block.label === nameOnly ? 1 : 0.15;
      context.fillStyle = of.kinds[RANGE]!;
      context.fillRect(left + x0, top, Math.max(x1 - x0 - (x1 - x0 > 4 ? 1 : 0), 0.5), height - 1);
      if (x1 - x0 > LEAST_TEXT) label(place, left + x0, x1 - x0, page.name(block.label));
    }
  }
  context.globalAlpha = 1;
  return all;
}

function label({ context, colors: of, top, height }: Place, x: number, width: number, text: string): void {
  context.save();
  context.beginPath();
  context.rect(x, top, width, height);
  context.clip();
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  const shown = text.slice(0, Math.ceil(width / 5));
  const wide = Math.min(width, context.measureText(shown).width + 6);
  context.fillStyle = of.ground;
  context.globalAlpha *= 0.85;
  context.fillRect(x + 1, top + height / 2 - 7, wide, 14);
  context.fillStyle = of.text;
  context.fillText(shown, x + 4, top + height / 2 + 0.5);
  context.restore();
}

/** Index of the event at a time; the innermost of nested ones. */
export function eventAt(begin: Float64Array, duration: Float64Array, at: number, slack: number): number {
  let best = -1;
  for (let i = firstFrom(begin, at + slack) - 1, seen = 0; i >= 0 && seen < 512; i--, seen++) {
    if (begin[i]! <= at + slack && begin[i]! + duration[i]! >= at - slack) {
      if (best < 0 || duration[i]! < duration[best]!) best = i;
    }
  }
  return best;
}
