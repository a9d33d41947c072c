// Rows of the timeline from top to bottom, and their positions. Rows of a GPU or a thread are a group, which folds into
// one row or is hidden.

import type { Curve, Lane, Page } from "./data";

export type RowKind = "axis" | "minimap" | "steps" | "curve" | "modules" | "folded" | Lane["kind"];

export interface Row {
  kind: RowKind;
  label: string;
  lane: Lane | null;
  curve?: Curve;
  device: number | null;
  top: number;
  height: number;
  /** The group that this row opens and closes. */
  opens?: Group;
  /** Lanes of a folded group. */
  lanes?: Lane[];
}

export interface Group {
  id: string;
  label: string;
  folded: boolean;
  hidden: boolean;
}

const HEIGHTS: Record<RowKind, number> = {
  minimap: 34, axis: 20, steps: 22, device: 64, stream: 24, thread: 24, samples: 10, ranges: 18, modules: 18, curve: 26,
  folded: 16,
};
const BETWEEN = 4;
/** Maximum depth of nested ranges that are drawn. */
export const LEVELS = 4;
/** Group of the threads that launch nothing after start-up: folded by default. */
export const OTHERS = "o";

/** Width of the row names. */
export const leftOf = (width: number) => (width < 600 ? 104 : 170);

/** Groups that differ from the default, by id. */
export interface Folds {
  folded: string[];
  hidden: string[];
}

/** All rows, with their positions, and all groups. Without `launches` every thread counts as one that launches. */
export function layout(
  page: Page, curves: Curve[], of: Folds, launches: (thread: Lane) => boolean = () => true,
): { rows: Row[]; groups: Group[] } {
  const rows: Row[] = [];
  const groups: Group[] = [];
  let top = 0;
  const add = (kind: RowKind, label: string, lane: Lane | null, device: number | null, height = HEIGHTS[kind]) => {
    const row: Row = { kind, label, lane, device, top, height };
    rows.push(row);
    top += height + BETWEEN;
    return row;
  };
  const group = (id: string, label: string, byDefault = false): Group => {
    const made = { id, label, folded: byDefault !== of.folded.includes(id), hidden: of.hidden.includes(id) };
    groups.push(made);
    return made;
  };
  const devices = page.lanes("device");
  add("minimap", "whole run", devices[0] ?? null, devices[0]?.device ?? null);
  add("axis", "time", null, null);
  for (const device of devices) {
    const here = group(`g${device.device}`, device.label);
    if (here.hidden) continue;
    const ofDevice = (lane: { device: number | null }) => lane.device === device.device;
    if (!here.folded && page.manifest.timeline?.steps.some((steps) => ofDevice(steps) && steps.rows.length)) {
      add("steps", "steps", null, device.device);
    }
    add("device", device.label, device, device.device).opens = here;
    if (here.folded) continue;
    const along = (queue: boolean) => curves.filter((curve) => ofDevice(curve) && (curve.unit === "") === queue)
      .forEach((curve) => (add("curve", curve.label, null, device.device).curve = curve));
    along(true);
    for (const stream of page.lanes("stream").filter(ofDevice)) {
      if (stream.nodes) add("modules", `modules of stream ${stream.id}`, stream, device.device);
      add("stream", devices.length > 1 ? stream.label : `stream ${stream.id}`, stream, device.device);
    }
    along(false);
  }
  // Without recorded work, as in mode monitor, there may be readings.
  if (devices.length === 0) curves.forEach((curve) => (add("curve", curve.label, null, curve.device).curve = curve));
  const ranges = page.lanes("ranges");
  for (const lane of ranges.filter((lane) => lane.id === 0)) {
    if (!group("r", lane.label).hidden) add("ranges", lane.label, lane, null);
  }
  const all = threads(page);
  const idle = all.filter(({ calls }) => !calls || !launches(calls));
  // A thread alone is shown in any case.
  const others = idle.length < all.length ? idle : [];
  const thread = ({ id, label, lanes, calls, samples, nested }: Thread) => {
    const here = group(`t${id}`, label);
    if (here.hidden) return;
    if (here.folded) {
      Object.assign(add("folded", label, null, null), { opens: here, lanes });
      return;
    }
    const first = rows.length;
    if (nested) add("ranges", `ranges of ${label}`, nested, null, HEIGHTS.ranges * Math.min(LEVELS, nested.levels ?? LEVELS));
    if (calls) add("thread", label, calls, null);
    if (samples) add("samples", `samples of ${label}`, samples, null);
    (rows.slice(first).find((row) => row.kind === "thread") ?? rows[first])!.opens = here;
  };
  all.filter((one) => !others.includes(one)).forEach(thread);
  if (others.length) {
    const label = `${others.length} other ${others.length === 1 ? "thread" : "threads"}`;
    const here = group(OTHERS, label, true);
    if (!here.hidden) {
      const lanes = others.flatMap((one) => one.lanes);
      Object.assign(add("folded", label, null, null), { opens: here, lanes });
      if (!here.folded) others.forEach(thread);
    }
  }
  return { rows, groups };
}

interface Thread {
  id: number;
  label: string;
  lanes: Lane[];
  calls?: Lane;
  samples?: Lane;
  nested?: Lane;
}

/** Threads with calls, samples or ranges, in this order. */
function threads(page: Page): Thread[] {
  const found = new Map<number, Thread>();
  for (const [kind, field] of [["thread", "calls"], ["samples", "samples"], ["ranges", "nested"]] as const) {
    for (const lane of page.lanes(kind)) {
      if (kind === "ranges" && lane.id === 0) continue;
      const known = found.get(lane.id) ?? { id: lane.id, label: lane.label, lanes: [] };
      known[field] = lane;
      known.lanes.push(lane);
      found.set(lane.id, known);
    }
  }
  return [...found.values()];
}

export function height(of: Row[]): number {
  const last = of[of.length - 1];
  return last ? last.top + last.height + BETWEEN : 0;
}

export function rowAt(of: Row[], y: number): Row | undefined {
  return of.find((row) => y >= row.top && y < row.top + row.height);
}
