// Exact sums of any part of a lane: running sums by interval, and segments at the two edges.

import { GAP_END, Numbers, Page, visitChunk, type Lane } from "./data";

/** Time by key in equal intervals, as running sums. */
export class Sums {
  /** By key: running sums, one more than there are intervals; absent keys have no time. */
  readonly running = new Map<number, Float64Array>();

  constructor(bytes: Uint8Array, readonly intervals: number, readonly span: number) {
    const numbers = new Numbers(bytes);
    const keys = numbers.next();
    for (let k = 0; k < keys; k++) {
      const key = numbers.next();
      const running = new Float64Array(intervals + 1);
      for (let i = 0; i < intervals; i++) running[i + 1] = running[i]! + numbers.next();
      this.running.set(key, running);
    }
  }

  /** Index of the interval boundary nearest to a time. */
  border(at: number): number {
    return Math.min(this.intervals, Math.max(0, Math.round(at / this.span)));
  }

  /** Nanoseconds of a key between two boundaries. */
  between(key: number, from: number, to: number): number {
    const running = this.running.get(key);
    return running ? running[to]! - running[from]! : 0;
  }
}

/** Time by cause of an interval of a device. */
export interface Breakdown {
  from: number;
  to: number;
  /** Nanoseconds by leaf. */
  leaves: Float64Array;
  /** Maximum error due to the edges, nanoseconds; 0 is exact. */
  within: number;
}

/** Time by cause from `from` to `to`: exact if the segments at the edges are in the page. */
export async function breakdown(page: Page, lane: Lane, sums: Sums, from: number, to: number): Promise<Breakdown> {
  const leaves = new Float64Array(page.manifest.leaves.length);
  const add = async (begin: number, end: number) => {
    await page.visit(lane, begin, end, (events, i) => {
      const start = Math.max(begin, events.begin[i]!);
      const stop = Math.min(end, events.begin[i]! + events.duration[i]!);
      if (stop > start) leaves[events.values[0]![i]! % GAP_END]! += stop - start;
    });
  };
  const { span } = sums;
  const [first, last] = [Math.ceil(from / span), Math.floor(to / span)];
  if (first >= last) {
    if (page.whole(lane, from, to)) {
      await add(from, to);
      return { from, to, leaves, within: 0 };
    }
  } else if (page.whole(lane, from, first * span) && page.whole(lane, last * span, to)) {
    for (const key of sums.running.keys()) leaves[key] = sums.between(key, first, last);
    await add(from, first * span);
    await add(last * span, to);
    return { from, to, leaves, within: 0 };
  }
  const [a, b] = [sums.border(from), sums.border(to)];
  const [begin, end] = a < b ? [a, b] : [Math.min(a, sums.intervals - 1), Math.min(a, sums.intervals - 1) + 1];
  for (const key of sums.running.keys()) leaves[key] = sums.between(key, begin, end);
  return { from: begin * span, to: end * span, leaves, within: span };
}

/**
 * Nanoseconds by leaf of the whole run as in the report, if the timeline has others: the report divides time that no
 * host sample saw like the sampled time, without knowing which gap is which.
 */
export function estimated(page: Page, lane: Lane, sums: Sums): Float64Array | null {
  const device = page.manifest.report.devices.find((row: { id: number }) => row.id === lane.device);
  const leaves = Float64Array.from(page.manifest.leaves, ({ name }) => device?.leaves[name] ?? 0);
  const differs = leaves.some((nanos, leaf) => nanos !== sums.between(leaf, 0, sums.intervals));
  return device && differs ? leaves : null;
}

/** Idle segments of one gap. */
export interface Part {
  begin: number;
  duration: number;
  leaf: number;
  subject: number;
  stack: number;
}

/** The segments of a lane from `from` to `to`. */
export async function segments(page: Page, lane: Lane, from: number, to: number): Promise<Part[]> {
  const parts: Part[] = [];
  await page.visit(lane, from, to, (events, i) => {
    if (events.begin[i]! >= to || events.begin[i]! + events.duration[i]! <= from) return;
    parts.push({
      begin: events.begin[i]!,
      duration: events.duration[i]!,
      leaf: events.values[0]![i]! % GAP_END,
      subject: events.values[1]![i]!,
      stack: events.values[2]![i]!,
    });
  });
  return parts.sort((a, b) => a.begin - b.begin);
}

/** Next segment of one cause after `at`, or the previous one. */
export async function neighbor(
  page: Page,
  lane: Lane,
  at: number,
  leaf: number,
  forward: boolean,
): Promise<Part | null> {
  const order = lane.chunks.map((_, index) => index);
  if (!forward) order.reverse();
  for (const index of order) {
    const { first, last } = lane.chunks[index]!;
    if (forward ? last <= at : first >= at) continue;
    let found: Part | null = null;
    const events = await page.chunk(lane, index);
    visitChunk(events, first, last + 1, (of, i) => {
      const begin = of.begin[i]!;
      if (of.values[0]![i]! % GAP_END !== leaf || (forward ? begin <= at || found : begin >= at)) return;
      const [subject, stack] = [of.values[1]![i]!, of.values[2]![i]!];
      found = { begin, duration: of.duration[i]!, leaf, subject, stack };
    });
    if (found) return found;
  }
  return null;
}
