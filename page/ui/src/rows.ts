// Rows of the timeline from top to bottom, and their positions.

import type { Curve, Lane, Page } from "./data";

export type RowKind = "axis" | "minimap" | "steps" | "curve" | Lane["kind"];

export interface Row {
  kind: RowKind;
  label: string;
  lane: Lane | null;
  curve?: Curve;
  device: number | null;
  top: number;
  height: number;
}

const HEIGHTS: Record<RowKind, number> = {
  minimap: 34, axis: 20, steps: 22, device: 64, stream: 24, thread: 24, samples: 10, ranges: 18, curve: 26,
};
const BETWEEN = 4;
/** Maximum depth of nested ranges that are drawn. */
export const LEVELS = 4;

/** All rows, with their positions. */
export function rows(page: Page, curves: Curve[] = []): Row[] {
  const found: Row[] = [];
  let top = 0;
  const add = (kind: RowKind, label: string, lane: Lane | null, device: number | null, height = HEIGHTS[kind]) => {
    found.push({ kind, label, lane, device, top, height });
    top += height + BETWEEN;
  };
  const devices = page.lanes("device");
  add("minimap", "whole run", devices[0] ?? null, devices[0]?.device ?? null);
  add("axis", "time", null, null);
  for (const device of devices) {
    if (page.manifest.timeline?.steps.some((steps) => steps.device === device.device && steps.rows.length)) {
      add("steps", "steps", null, device.device);
    }
    add("device", device.label, device, device.device);
    const [queue, others] = [true, false].map((queue) =>
      curves.filter((curve) => curve.device === device.device && (curve.unit === "") === queue)) as [Curve[], Curve[]];
    const along = (of: Curve[]) => of.forEach((curve) => {
      add("curve", curve.label, null, device.device);
      found[found.length - 1]!.curve = curve;
    });
    along(queue);
    for (const stream of page.lanes("stream").filter((lane) => lane.device === device.device)) {
      add("stream", stream.label, stream, device.device);
    }
    along(others);
  }
  const ranges = page.lanes("ranges");
  for (const lane of ranges.filter((lane) => lane.id === 0)) add("ranges", lane.label, lane, null);
  for (const thread of page.lanes("thread")) {
    for (const lane of ranges.filter((lane) => lane.id === thread.id)) {
      add("ranges", lane.label, lane, null, HEIGHTS.ranges * LEVELS);
    }
    add("thread", thread.label, thread, null);
    const samples = page.lane("samples", thread.id);
    if (samples) add("samples", `samples of ${samples.label}`, samples, null);
  }
  return found;
}

export function height(of: Row[]): number {
  const last = of[of.length - 1];
  return last ? last.top + last.height + BETWEEN : 0;
}

export function rowAt(of: Row[], y: number): Row | undefined {
  return of.find((row) => y >= row.top && y < row.top + row.height);
}
