// Flame graphs of device time: idle time by the stack that it is attributed to, and the work of CUDA graphs by the
// stack that captured it.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { GAP_END, type Page } from "./data";
import { duration, percent } from "./format";

export interface Frame {
  text: string;
  nanos: number;
  children: Map<string, Frame>;
}

/** Sums idle time after `from` by stack, from the outermost frame. Idle time without a stack is excluded and counted. */
export async function lost(page: Page, device: number, from: number): Promise<{ root: Frame; without: number }> {
  const root: Frame = { text: "idle time with a stack", nanos: 0, children: new Map() };
  let without = 0;
  const lane = page.lane("device", device, device);
  if (!lane) return { root, without };
  const byStack = new Map<number, number>();
  for (let index = 0; index < lane.chunks.length; index++) {
    if (lane.chunks[index]!.last <= from) continue;
    const events = await page.chunk(lane, index);
    for (let i = 0; i < events.count; i++) {
      if (page.manifest.leaves[events.values[0]![i]! % GAP_END]!.busy) continue;
      const nanos = events.begin[i]! + events.duration[i]! - Math.max(from, events.begin[i]!);
      if (nanos <= 0) continue;
      const stack = events.values[2]![i]!;
      if (stack > 0) byStack.set(stack, (byStack.get(stack) ?? 0) + nanos);
      else without += nanos;
    }
  }
  for (const [stack, nanos] of byStack) below(root, framesOf(page, stack), nanos);
  return { root, without };
}

/** Sums the time of operations of CUDA graphs by the stack that captured them. */
export function captured(page: Page): Frame {
  const root: Frame = { text: "work of CUDA graphs", nanos: 0, children: new Map() };
  for (const { at, stack, total_ns: nanos } of page.names.origins ?? []) {
    if (nanos > 0) below(root, stack > 0 ? framesOf(page, stack) : [page.name(at)], nanos);
  }
  return root;
}

/** Number of frames, from the innermost, from which a sample may lack the outer ones; and the frame in their place. */
const MOST_FRAMES = 64;
const CUT = "… outer frames not recorded";

/** The texts of a stack's frames, from the outermost. */
function framesOf(page: Page, stack: number): string[] {
  // Python's import machinery, five frames per module, would hide the module; so would the calls of torch.nn.Module.
  const hides = /^<frozen importlib|\/torch\/nn\/modules\/module\.py$/;
  const all = page.stack(stack);
  const frames = all.filter((frame) => !hides.test(frame.file));
  const cut = all.length >= MOST_FRAMES && all[all.length - 1]!.text !== "<module>" ? [CUT] : [];
  return cut.concat(frames.reverse().map((frame) => {
    // For the code of a module the file is the name; for __init__.py with its folder.
    const module = frame.text === "<module>";
    const file = frame.file.replace(module ? /^.*\/(?=[^/]*\/)/ : /^.*\//, "");
    return frame.line ? `${module ? "" : `${frame.text} `}${file}:${frame.line}` : frame.text;
  }));
}

/** Adds time to a frame and to those below it. */
function below(root: Frame, frames: string[], nanos: number): void {
  let at = root;
  at.nanos += nanos;
  for (const text of frames) {
    let child = at.children.get(text);
    if (!child) at.children.set(text, (child = { text, nanos: 0, children: new Map() }));
    child.nanos += nanos;
    at = child;
  }
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

/** A flame graph with a title and a text above it; a click zooms. */
function Flame({ root, title, children }: { root: Frame; title: string; children: ComponentChildren }) {
  const [top, setTop] = useState<Frame | null>(null);
  const all = boxes(top ?? root);
  const depth = Math.max(...all.map((box) => box.depth)) + 1;
  return (
    <div>
      <p>
        {children} A click zooms.
        {top && <button onClick={() => setTop(null)}>show all</button>}
      </p>
      <div class="flame" role="group" aria-label={title} style={{ height: `${depth * HIGH}px` }}>
        {all.map(({ frame, x, width, depth: level }) => (
          <button
            class={level % 2 ? "flame-a" : "flame-b"}
            style={{ left: `${(x / WIDE) * 100}%`, width: `${(width / WIDE) * 100}%`, top: `${level * HIGH}px` }}
            title={`${frame.text}\n${duration(frame.nanos)}, ${percent(frame.nanos / root.nanos)}`}
            onClick={() => setTop(frame)}
          >
            {width > 20 ? frame.text : ""}
          </button>
        ))}
      </div>
    </div>
  );
}

export function FlameView({ page, device }: { page: Page; device: number }) {
  const [found, set] = useState<{ root: Frame; without: number } | null>(null);
  const [whole, setWhole] = useState(false);
  const steady = page.steadyFrom(device);
  useEffect(() => {
    void lost(page, device, whole ? 0 : steady).then(set);
  }, [device, whole]);
  if (!found) return <p>…</p>;
  const part = steady === 0 || whole ? "of the whole run" : "after start-up";
  return (
    <div>
      <h2>Stacks by lost GPU time, {part}</h2>
      {steady > 0 && (
        <p class="buttons" role="group" aria-label="Part of the run">
          <button aria-pressed={!whole} onClick={() => setWhole(false)}>after start-up</button>
          <button aria-pressed={whole} onClick={() => setWhole(true)}>whole run</button>
        </p>
      )}
      {found.root.nanos === 0 ? (
        <p>No idle time has a stack: no sample fell into a gap, or the segments are not in this page.</p>
      ) : (
        <Flame key={part} root={found.root} title="Stacks by lost GPU time">
          A width is the time in which the GPU was idle because of a stack: {duration(found.root.nanos)} in all. Idle time
          without a stack, {duration(found.without)}, is not in the picture, nor are frames of Python's import machinery and
          of torch.nn.Module.
        </Flame>
      )}
    </div>
  );
}

export function GraphFlame({ page }: { page: Page }) {
  const root = useMemo(() => captured(page), [page]);
  if (root.nanos === 0) return <p>No operation of a CUDA graph is within the run.</p>;
  return (
    <div>
      <h2>Stacks that captured the work of CUDA graphs</h2>
      <Flame root={root} title="Stacks that captured the work of CUDA graphs">
        A width is the time of the operations that a stack captured, on all GPUs, in all replays: {duration(root.nanos)}
        in all.
      </Flame>
    </div>
  );
}
