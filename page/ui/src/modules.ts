// Blocks of a CUDA graph's replay: adjacent operations of a stream that the same module captured.

import { firstFrom, visitChunk, type Events, type Page } from "./data";

/** Columns of a stream: the call that launched or replayed an operation, and what captured it. */
const CORRELATION = 2;
export const ORIGIN = 3;
/** Maximum number of operations before a time that are searched for its block. */
const MOST_BEFORE = 512;

export interface Block {
  from: number;
  to: number;
  /** Name of what captured it. */
  label: number;
  /** Operations in the chunk, by the name of their line. */
  lines: Map<number, number>;
}

/** Key of the block of an operation; `null` for work outside graphs. */
function key(page: Page, of: Events, i: number): string | null {
  const origin = page.origin(of.values[ORIGIN]?.[i] ?? 0);
  return origin ? `${of.values[CORRELATION]![i]} ${origin.label}` : null;
}

function add(page: Page, of: Events, i: number, block: Block): void {
  const { at } = page.origin(of.values[ORIGIN]![i]!)!;
  block.from = Math.min(block.from, of.begin[i]!);
  block.to = Math.max(block.to, of.begin[i]! + of.duration[i]!);
  block.lines.set(at, (block.lines.get(at) ?? 0) + 1);
}

function begun(page: Page, of: Events, i: number): Block {
  const block = { from: Infinity, to: 0, label: page.origin(of.values[ORIGIN]![i]!)!.label, lines: new Map() };
  add(page, of, i, block);
  return block;
}

/** The blocks of a chunk between two times, as far as their operations overlap this time. */
export function blocks(page: Page, of: Events, from: number, to: number): Block[] {
  const found: Block[] = [];
  let before: string | null = null;
  visitChunk(of, from, to, (_, i) => {
    const now = key(page, of, i);
    if (now !== null && now === before) add(page, of, i, found[found.length - 1]!);
    else if (now !== null) found.push(begun(page, of, i));
    before = now;
  });
  return found;
}

/** The whole block of a chunk at a time. */
export function blockAt(page: Page, of: Events, at: number, slack: number): Block | null {
  const last = firstFrom(of.begin, at + slack) - 1;
  for (let i = last; i >= 0 && last - i < MOST_BEFORE; i--) {
    const wanted = key(page, of, i);
    if (wanted === null) continue;
    const block = begun(page, of, i);
    for (let k = i - 1; k >= 0 && key(page, of, k) === wanted; k--) add(page, of, k, block);
    for (let k = i + 1; k < of.count && key(page, of, k) === wanted; k++) add(page, of, k, block);
    if (block.to >= at - slack) return block;
  }
  return null;
}
