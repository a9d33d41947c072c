// The text at the pointer. It has its own state, so that moving the pointer redraws nothing else.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { firstFrom, GAP_END, type Page } from "./data";
import { duration, moment, quantity } from "./format";
import { blockAt } from "./modules";
import { meanOf } from "./paint";
import type { Hit } from "./timeline";

/** What is under the pointer, and where the pointer is in the window. `at` is NaN over the names of rows. */
export interface Pointed extends Hit {
  x: number;
  y: number;
}

const APART = 14;

export function Tip({ page, set }: { page: Page; set: { current: (to: Pointed | null) => void } }) {
  const [pointed, point] = useState<Pointed | null>(null);
  const box = useRef<HTMLDivElement>(null);
  set.current = point;
  useLayoutEffect(() => {
    if (!pointed || !box.current) return;
    const { style, offsetWidth: width, offsetHeight: height } = box.current;
    const right = pointed.x + APART + width <= document.documentElement.clientWidth;
    const below = pointed.y + APART + height <= window.innerHeight;
    style.left = `${Math.max(0, right ? pointed.x + APART : pointed.x - APART - width)}px`;
    style.top = `${Math.max(0, below ? pointed.y + APART : pointed.y - APART - height)}px`;
  });
  return pointed && (
    <div class="tip" ref={box} aria-hidden="true">
      {lines(page, pointed).map((line) => <div>{line}</div>)}
    </div>
  );
}

/** The lines of a tip: what it is, and where. */
export function lines(page: Page, { row, at, slack }: Hit): string[] {
  if (Number.isNaN(at)) return [row.label];
  const where = `${row.label}, at ${moment(at, slack)}`;
  if (row.curve) {
    const value = meanOf(row.curve, at, at + slack);
    return [Number.isNaN(value) ? "not known" : quantity(value, row.curve.unit), where];
  }
  const lane = row.lane;
  if (!lane || row.kind === "minimap") return [where];
  for (const index of page.chunksIn(lane, at, at + 1)) {
    const events = page.peek(lane, index);
    if (!events) continue;
    if (row.kind === "modules") {
      const block = blockAt(page, events, at, slack);
      if (block) return [page.name(block.label).slice(0, 160), duration(block.to - block.from), where];
      continue;
    }
    for (let i = firstFrom(events.begin, at + 1) - 1; i >= 0; i--) {
      if (events.begin[i]! + events.duration[i]! <= at) continue;
      const value = events.values[0]![i]!;
      const text = lane.kind === "device" ? page.manifest.leaves[value % GAP_END]!.words
        : lane.kind === "samples" ? sampled(page, value) : page.name(value);
      return [text.slice(0, 160), duration(events.duration[i]!), where];
    }
  }
  return [where];
}

/** The innermost frame of a sample. */
function sampled(page: Page, stack: number): string {
  const frame = page.stack(stack)[0];
  return frame ? `sample in ${frame.text}` : "sample";
}
