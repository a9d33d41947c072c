// The timeline: a canvas with all rows, moved and zoomed by mouse and keyboard.

import { useEffect, useRef, useState } from "preact/hooks";
import { curve, type Curve, type Lane, type Page } from "./data";
import { duration, marks, moment } from "./format";
import * as paint from "./paint";
import { height, leftOf, LEVELS, rowAt, type Group, type Row } from "./rows";
import { Sums } from "./sums";
import { Tip, type Pointed } from "./tip";
import { clamp, key, panned, zoomed, type View } from "./view";

/** Room for the signs that fold rows, pixels. */
const INDENT = 16;
/** Width of the picture on paper, pixels. */
const PAPER = 900;
/** A press with a smaller movement is a click, pixels. */
const CLICK = 4;

/** Target of the pointer. */
export interface Hit {
  row: Row;
  at: number;
  /** Time covered by a pixel, nanoseconds. */
  slack: number;
}

export interface TimelineProps {
  page: Page;
  sums: Map<Lane, Sums>;
  rows: Row[];
  view: View;
  /** The newest view, which may not be drawn yet. */
  latest: () => View;
  show: (view: View) => void;
  /** Asks about a place; `y` is its bottom in the window. */
  pick: (hit: Hit, y: number) => void;
  fold: (group: Group) => void;
}

function drawSteps(page: Page, row: Row, place: paint.Place): void {
  const { context, colors, view, left, width, top } = place;
  const of = page.manifest.timeline?.steps.find((steps) => steps.device === row.device);
  if (!of) return;
  const perPixel = (view.to - view.from) / width;
  let at = 0;
  let before = -1;
  of.rows.forEach(([gap, lasted], index) => {
    const begin = at + gap;
    at = begin + lasted;
    if (at < view.from || begin > view.to) return;
    const x0 = Math.max(0, (begin - view.from) / perPixel);
    const x1 = Math.min(width, at - view.from === 0 ? 0 : (at - view.from) / perPixel);
    if (x1 - before < 1.5 && x1 - x0 < 1.5) return;
    before = x1;
    const kind = of.kinds[index];
    const prompts = kind !== undefined && kind !== "decode";
    context.fillStyle = prompts ? colors.accent : index % 2 ? colors.line : colors.panel;
    context.fillRect(left + x0, top, Math.max(1, x1 - x0), row.height);
    context.fillStyle = colors.quiet;
    context.fillRect(left + x0, top, 1, row.height);
    if (x1 - x0 > 70) {
      context.fillStyle = prompts ? colors.ground : colors.text;
      context.fillText(`${index + 1}: ${kind ? `${kind} ` : ""}${duration(lasted)}`, left + x0 + 5, top + row.height / 2);
    }
  });
}

function drawAxis(page: Page, place: paint.Place): void {
  const { context, colors, view, left, width, top, height: high } = place;
  context.fillStyle = colors.quiet;
  const perPixel = (view.to - view.from) / width;
  const all = marks(view.from, view.to, width / 130, page.manifest.timeline!.after_start_ns);
  const step = all.length > 1 ? all[1]! - all[0]! : view.to - view.from;
  for (const at of all) {
    const x = left + (at - view.from) / perPixel;
    context.fillRect(x, top + high - 5, 1, 5);
    if (x < left + width - 90) context.fillText(moment(at, step), x + 3, top + high / 2 - 2);
  }
  // Intervals without any event in the page.
  const windows = page.manifest.timeline?.windows;
  for (const [from, to] of windows ?? []) {
    const [x0, x1] = [from, to].map((at) => Math.min(width, Math.max(0, (at - view.from) / perPixel)));
    if (x1! > x0!) context.fillRect(left + x0!, top + high - 2, Math.max(1, x1! - x0!), 2);
  }
}

function drawMinimap(page: Page, sums: Sums | undefined, place: paint.Place, window: number): void {
  const { context, colors, view, left, width, top, height: high } = place;
  if (sums) paint.columns(page, sums, { ...place, view: { ...view, from: 0, to: window } }, -1);
  const [x0, x1] = [view.from, view.to].map((at) => left + (at / window) * width);
  context.strokeStyle = colors.text;
  context.lineWidth = 2;
  context.strokeRect(x0! + 1, top + 1, Math.max(2, x1! - x0! - 2), high - 2);
}

/** Draws everything. */
function draw(canvas: HTMLCanvasElement, props: TimelineProps, brush: [number, number] | null, onPaper = false): void {
  const { page, sums, view, rows: all } = props;
  const timeline = page.manifest.timeline!;
  const ratio = onPaper ? 2 : window.devicePixelRatio || 1;
  const width = onPaper ? PAPER : canvas.clientWidth;
  const left = leftOf(width);
  const high = height(all);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(high * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(high * ratio);
  }
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const colors = paint.colors(page, context);
  context.fillStyle = colors.ground;
  context.fillRect(0, 0, width, high);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const row of all) {
    const place = { context, colors, view, left, width: width - left, top: row.top, height: row.height };
    context.fillStyle = colors.panel;
    context.fillRect(left, row.top, width - left, row.height);
    context.fillStyle = row.opens ? colors.text : colors.quiet;
    const value = row.curve && paint.hasScale(left) ? context.measureText(paint.most(row.curve)).width + 8 : 0;
    context.fillText(paint.fitted(context, row.label, left - INDENT - 4 - value), INDENT, row.top + row.height / 2);
    const of = row.lane ? sums.get(row.lane) : undefined;
    if (row.kind === "axis") drawAxis(page, place);
    else if (row.kind === "minimap") drawMinimap(page, of, place, timeline.window_ns);
    else if (row.kind === "steps") drawSteps(page, row, place);
    else if (row.curve) paint.curve(row.curve, place);
    else if (row.kind === "device") {
      const fine = of && of.span < (view.to - view.from) / place.width;
      const drawn = paint.segments(page, row.lane!, place, view.leaf) || (!fine && paint.pixels(page, row.lane!, place, view.leaf));
      if (!drawn && of) paint.columns(page, of, place, view.leaf);
    } else if (row.kind === "folded") {
      for (const lane of row.lanes!) {
        const times = sums.get(lane);
        if (times) paint.density(times, place);
      }
    } else if (row.lane) {
      const levels = row.kind === "ranges" && row.lane.id !== 0 ? Math.min(LEVELS, row.lane.levels ?? LEVELS) : 1;
      const drawn = row.kind === "modules" ? paint.modules(page, row.lane, place, view.name)
        : paint.events(page, row.lane, place, view.name, levels);
      if (!drawn) {
        if (of && row.kind !== "modules") paint.density(of, place);
        else if (row.lane.events > 0) {
          context.fillStyle = colors.quiet;
          context.fillText("zoom in to see single events", left + 6, row.top + row.height / 2);
        }
      }
    }
  }
  const selected = brush ?? view.selected;
  if (selected) {
    const perPixel = (view.to - view.from) / (width - left);
    const [x0, x1] = selected.map((at) => Math.min(width, Math.max(left, left + (at - view.from) / perPixel)));
    context.fillStyle = colors.accent;
    context.globalAlpha = 0.18;
    // The minimap has another scale.
    const top = all[1]?.top ?? 0;
    context.fillRect(x0!, top, Math.max(1, x1! - x0!), high - top);
    context.globalAlpha = 1;
    context.fillRect(x0!, top, 1, high - top);
    context.fillRect(x1!, top, 1, high - top);
  }
}

interface Press {
  x: number;
  y: number;
  row: Row | undefined;
  pan: boolean;
  view: View;
}

export function TimelineView(props: TimelineProps) {
  const { page, view, show, rows: all } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const press = useRef<Press | null>(null);
  const tip = useRef<(to: Pointed | null) => void>(() => {});
  const [brush, setBrush] = useState<[number, number] | null>(null);
  const [, redraw] = useState(0);
  const total = page.manifest.timeline!.window_ns;
  useEffect(() => {
    const again = () => redraw((count) => count + 1);
    let asked = false;
    page.arrived = () => {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        again();
      });
    };
    // Paper is light, and is printed before a drawing that is only asked for.
    const { dataset } = document.documentElement;
    let before: string | undefined;
    const print = () => {
      before = dataset.theme;
      dataset.theme = "light";
      newest.current(true);
    };
    const printed = () => {
      if (before === undefined) delete dataset.theme;
      else dataset.theme = before;
      newest.current();
    };
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", again);
    window.addEventListener("resize", again);
    window.addEventListener("gpuwhy-theme", again);
    window.addEventListener("beforeprint", print);
    window.addEventListener("afterprint", printed);
    return () => {
      theme.removeEventListener("change", again);
      window.removeEventListener("resize", again);
      window.removeEventListener("gpuwhy-theme", again);
      window.removeEventListener("beforeprint", print);
      window.removeEventListener("afterprint", printed);
    };
  }, []);
  const newest = useRef((_onPaper?: boolean) => {});
  newest.current = (onPaper) => canvas.current && draw(canvas.current, props, brush, onPaper);
  useEffect(() => newest.current());

  const place = (event: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const width = box.width - leftOf(box.width);
    const [x, y] = [event.clientX - box.left - leftOf(box.width), event.clientY - box.top];
    const perPixel = (view.to - view.from) / width;
    return { x, y, width, perPixel, at: view.from + Math.min(width, Math.max(0, x)) * perPixel };
  };
  const wheel = (event: WheelEvent) => {
    const { x, width } = place(event);
    if (x < 0) return;
    event.preventDefault();
    const view = props.latest();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      show(panned(view, (event.shiftKey ? event.deltaY : event.deltaX) / width, total));
    } else {
      show(zoomed(view, 1.0015 ** event.deltaY, x / width, total));
    }
  };
  const down = (event: PointerEvent) => {
    const { x, y } = place(event);
    if (event.button !== 0 || x < 0) return;
    tip.current(null);
    const row = rowAt(all, y);
    press.current = { x, y, row, pan: event.shiftKey || row?.kind === "axis" || row?.kind === "minimap", view };
    try {
      canvas.current!.setPointerCapture(event.pointerId);
    } catch {
      // The pointer is no longer active.
    }
    if (row?.kind === "minimap") jump(event);
  };
  /** Moves the window so that its middle is at the pressed position of the minimap. */
  const jump = (event: MouseEvent) => {
    const { x, width } = place(event);
    const [middle, length] = [(x / width) * total, view.to - view.from];
    show(clamp({ ...view, from: middle - length / 2, to: middle + length / 2 }, total));
  };
  const move = (event: PointerEvent) => {
    const { x, y, width, at, perPixel } = place(event);
    const begun = press.current;
    if (!begun) {
      const row = event.pointerType === "touch" ? undefined : rowAt(all, y);
      tip.current(row ? { row, at: x < 0 ? NaN : at, slack: perPixel, x: event.clientX, y: event.clientY } : null);
      return;
    }
    if (begun.row?.kind === "minimap") jump(event);
    else if (begun.pan) show(panned(begun.view, (begun.x - x) / width, total));
    else if (Math.abs(x - begun.x) >= CLICK) {
      const from = view.from + Math.min(width, Math.max(0, begun.x)) * perPixel;
      setBrush(from < at ? [from, at] : [at, from]);
    }
  };
  const up = (event: PointerEvent) => {
    const begun = press.current;
    press.current = null;
    if (!begun || begun.row?.kind === "minimap") return;
    const { x, at, perPixel } = place(event);
    setBrush(null);
    if (begun.pan) return;
    if (brush && Math.abs(x - begun.x) >= CLICK) {
      show({ ...view, selected: [Math.round(brush[0]), Math.round(brush[1])], device: begun.row?.device ?? view.device });
    } else if (begun.row) {
      const { row } = begun;
      props.pick({ row, at, slack: perPixel }, canvas.current!.getBoundingClientRect().top + row.top + row.height);
    }
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const next = key(props.latest(), event.key, total);
    if (next) {
      event.preventDefault();
      show(next);
    }
  };
  const label =
    "Timeline by cause. W and S zoom, A and D move, brackets go to the next gap of the same cause, F shows the whole run.";
  return (
    <div class="rows">
      <canvas
        ref={canvas}
        class="timeline"
        tabIndex={0}
        role="img"
        aria-label={label}
        style={{ height: `${height(all)}px` }}
        onWheel={wheel}
        onPointerDown={down}
        onPointerMove={move}
        onPointerUp={up}
        onPointerLeave={() => tip.current(null)}
        onKeyDown={pressed}
      />
      {all.filter((row) => row.opens).map((row) => (
        <button key={row.opens!.id} class="fold" style={{ top: `${row.top + row.height / 2 - 8}px` }} title={row.label}
          aria-expanded={!row.opens!.folded} aria-label={`rows of ${row.label}`} onClick={() => props.fold(row.opens!)}>
          {row.opens!.folded ? "▸" : "▾"}
        </button>
      ))}
      <Tip page={page} set={tip} />
    </div>
  );
}

/** Reads the sums of all lanes. */
export async function readSums(page: Page): Promise<Map<Lane, Sums>> {
  const found = new Map<Lane, Sums>();
  const timeline = page.manifest.timeline;
  for (const lane of timeline?.lanes ?? []) {
    if (lane.sums !== null) {
      found.set(lane, new Sums(await page.bytes(lane.sums), timeline!.intervals, timeline!.span_ns));
    }
  }
  return found;
}

/** Reads the values of all curves. */
export async function readCurves(page: Page): Promise<Curve[]> {
  const entries = page.manifest.timeline?.curves ?? [];
  return Promise.all(entries.map(async (entry) => curve(await page.bytes(entry.block), entry)));
}
