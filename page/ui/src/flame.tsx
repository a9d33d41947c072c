// A flame graph whose widths are lost device time: nanoseconds of device idle time attributed to a stack.

import { useEffect, useState } from "preact/hooks";
import { GAP_END, type Page } from "./data";
import { duration, percent } from "./format";

export interface Frame {
  text: string;
  nanos: number;
  children: Map<string, Frame>;
}

/** Sums idle time by stack, from the outermost frame. Idle time without a stack is excluded and counted. */
export async function lost(page: Page, device: number): Promise<{ root: Frame; without: number }> {
  const root: Frame = { text: "idle time with a stack", nanos: 0, children: new Map() };
  let without = 0;
  const lane = page.lane("device", device, device);
  if (!lane) return { root, without };
  const byStack = new Map<number, number>();
  for (let index = 0; index < lane.chunks.length; index++) {
    const events = await page.chunk(lane, index);
    for (let i = 0; i < events.count; i++) {
      if (page.manifest.leaves[events.values[0]![i]! % GAP_END]!.busy) continue;
      const stack = events.values[2]![i]!;
      if (stack > 0) byStack.set(stack, (byStack.get(stack) ?? 0) + events.duration[i]!);
      else without += events.duration[i]!;
    }
  }
  for (const [stack, nanos] of byStack) {
    let at = root;
    at.nanos += nanos;
    for (const frame of page.stack(stack).reverse()) {
      // Python's import machinery, five frames per module, would hide the module.
      if (frame.file.startsWith("<frozen importlib")) continue;
      // For the code of a module the file is the name; for __init__.py with its folder.
      const module = frame.text === "<module>";
      const file = frame.file.replace(module ? /^.*\/(?=[^/]*\/)/ : /^.*\//, "");
      const text = frame.line ? `${module ? "" : `${frame.text} `}${file}:${frame.line}` : frame.text;
      let child = at.children.get(text);
      if (!child) at.children.set(text, (child = { text, nanos: 0, children: new Map() }));
      child.nanos += nanos;
      at = child;
    }
  }
  return { root, without };
}

const HIGH = 20;
const WIDE = 1000;
const MOST_DEPTH = 48;

interface Box {
  frame: Frame;
  x: number;
  width: number;
  depth: number;
}

/** The boxes of a frame and its callees, widest first, as fractions of `WIDE`. */
export function boxes(root: Frame): Box[] {
  const found: Box[] = [];
  const add = (frame: Frame, x: number, depth: number) => {
    const width = (frame.nanos / Math.max(1, root.nanos)) * WIDE;
    if (width < 0.5 || depth >= MOST_DEPTH) return;
    found.push({ frame, x, width, depth });
    let at = x;
    for (const child of [...frame.children.values()].sort((a, b) => b.nanos - a.nanos)) {
      add(child, at, depth + 1);
      at += (child.nanos / Math.max(1, root.nanos)) * WIDE;
    }
  };
  add(root, 0, 0);
  return found;
}

export function FlameView({ page, device }: { page: Page; device: number }) {
  const [found, set] = useState<{ root: Frame; without: number } | null>(null);
  const [top, setTop] = useState<Frame | null>(null);
  useEffect(() => {
    void lost(page, device).then(set);
  }, [device]);
  if (!found) return <p>…</p>;
  if (found.root.nanos === 0) {
    return <p>No idle time has a stack: no sample fell into a gap, or the segments are not in this page.</p>;
  }
  const root = top ?? found.root;
  const all = boxes(root);
  const depth = Math.max(...all.map((box) => box.depth)) + 1;
  return (
    <div>
      <h2>Stacks by lost GPU time</h2>
      <p>
        A width is the time in which the GPU was idle because of a stack: {duration(found.root.nanos)} in all. Idle time
        without a stack, {duration(found.without)}, is not in the picture, nor are frames of Python's import machinery. A
        click zooms.
        {top && <button onClick={() => setTop(null)}>show all</button>}
      </p>
      <div class="flame" role="group" aria-label="Stacks by lost GPU time" style={{ height: `${depth * HIGH}px` }}>
        {all.map(({ frame, x, width, depth: level }) => (
          <button
            class={level % 2 ? "flame-a" : "flame-b"}
            style={{ left: `${(x / WIDE) * 100}%`, width: `${(width / WIDE) * 100}%`, top: `${level * HIGH}px` }}
            title={`${frame.text}\n${duration(frame.nanos)}, ${percent(frame.nanos / found.root.nanos)}`}
            onClick={() => setTop(frame)}
          >
            {width > 20 ? frame.text : ""}
          </button>
        ))}
      </div>
    </div>
  );
}
