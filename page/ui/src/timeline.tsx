// The timeline: a canvas with all rows, moved and zoomed by mouse and keyboard.

import { useEffect, useRef, useState } from "preact/hooks";
import { curve, type Curve, type Lane, type Page } from "./data";
import { duration, marks, moment } from "./format";
import * as paint from "./paint";
import { height, LEVELS, rowAt, rows, type Row } from "./rows";
import { Sums } from "./sums";
import { clamp, key, panned, zoomed, type View } from "./view";

/** Width of the row names. */
const LEFT = 150;
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
  curves: Curve[];
  view: View;
  /** The newest view, which may not be drawn yet. */
  latest: () => View;
  show: (view: View) => void;
  pick: (hit: Hit) => void;
  hover: (hit: Hit | null) => void;
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
    context.fillStyle = index % 2 ? colors.line : colors.panel;
    context.fillRect(left + x0, top, Math.max(1, x1 - x0), row.height);
    context.fillStyle = colors.quiet;
    context.fillRect(left + x0, top, 1, row.height);
    if (x1 - x0 > 70) {
      context.fillStyle = colors.text;
      context.fillText(`${index + 1}: ${duration(lasted)}`, left + x0 + 5, top + row.height / 2);
    }
  });
}

function drawAxis(page: Page, place: paint.Place): void {
  const { context, colors, view, left, width, top, height: high } = place;
  context.fillStyle = colors.quiet;
  const perPixel = (view.to - view.from) / width;
  const all = marks(view.from, view.to, width / 130);
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
function draw(canvas: HTMLCanvasElement, all: Row[], props: TimelineProps, brush: [number, number] | null): void {
  const { page, sums, view } = props;
  const timeline = page.manifest.timeline!;
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
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
    const place = { context, colors, view, left: LEFT, width: width - LEFT, top: row.top, height: row.height };
    context.fillStyle = colors.panel;
    context.fillRect(LEFT, row.top, width - LEFT, row.height);
    context.fillStyle = colors.quiet;
    const text = row.label.length > 24 ? row.label.slice(0, 23) + "…" : row.label;
    context.fillText(text, 2, row.top + row.height / 2);
    const of = row.lane ? sums.get(row.lane) : undefined;
    if (row.kind === "axis") drawAxis(page, place);
    else if (row.kind === "minimap") drawMinimap(page, of, place, timeline.window_ns);
    else if (row.kind === "steps") drawSteps(page, row, place);
    else if (row.curve) paint.curve(row.curve, place);
    else if (row.kind === "device") {
      if (!paint.segments(page, row.lane!, place, view.leaf) && of) paint.columns(page, of, place, view.leaf);
    } else if (row.lane) {
      const levels = row.kind === "ranges" && row.lane.id !== 0 ? LEVELS : 1;
      if (!paint.events(page, row.lane, place, view.name, levels)) {
        if (of) paint.density(of, place);
        else if (row.lane.events > 0) {
          context.fillStyle = colors.quiet;
          context.fillText("zoom in to see single events", LEFT + 6, row.top + row.height / 2);
        }
      }
    }
  }
  const selected = brush ?? view.selected;
  if (selected) {
    const perPixel = (view.to - view.from) / (width - LEFT);
    const [x0, x1] = selected.map((at) => Math.min(width, Math.max(LEFT, LEFT + (at - view.from) / perPixel)));
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
  const { page, view, show } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const press = useRef<Press | null>(null);
  const [all] = useState(() => rows(page, props.curves));
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
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", again);
    window.addEventListener("resize", again);
    window.addEventListener("gpuwhy-theme", again);
    return () => {
      theme.removeEventListener("change", again);
      window.removeEventListener("resize", again);
      window.removeEventListener("gpuwhy-theme", again);
    };
  }, []);
  useEffect(() => {
    if (canvas.current) draw(canvas.current, all, props, brush);
  });

  const place = (event: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const width = box.width - LEFT;
    const [x, y] = [event.clientX - box.left - LEFT, event.clientY - box.top];
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
      const row = rowAt(all, y);
      props.hover(row && x >= 0 ? { row, at, slack: perPixel } : null);
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
      props.pick({ row: begun.row, at, slack: perPixel });
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
      onPointerLeave={() => props.hover(null)}
      onKeyDown={pressed}
    />
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
