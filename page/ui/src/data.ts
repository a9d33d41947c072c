// Contents of the page: blocks of compressed data, decoded on demand.

export interface Lane {
  kind: "device" | "stream" | "thread" | "samples" | "ranges";
  device: number | null;
  id: number;
  label: string;
  columns: string[];
  chunks: { block: number; count: number; first: number; last: number }[];
  sums: number | null;
  events: number;
  embedded: number;
  refused: number;
  /** Events that are nodes of CUDA graphs with `names.origins`. */
  nodes?: number;
  /** Depth of nested ranges. */
  levels?: number;
}

export interface Timeline {
  origin_unix_ns: string;
  /** From the start of tracing to the origin. */
  after_start_ns: number;
  window_ns: number;
  intervals: number;
  span_ns: number;
  windows: [number, number][] | null;
  lanes: Lane[];
  /** `kinds`: of the iterations of a server, else empty. */
  steps: { device: number; rows: [number, number][]; kinds: string[] }[];
  /** Trace data without a place in the timeline, by kind. */
  lost: Record<string, number>;
  uncorrected_ns: number;
  replay: ReplayEntry | null;
  counters: CounterLane[];
  curves: CurveEntry[];
}

/** A row of values over time. */
export interface CurveEntry {
  device: number;
  label: string;
  unit: string;
  /** Size of a step of the numbers in the block, in units. */
  step: number;
  /** The largest value. */
  most: number;
  intervals: number;
  span_ns: number;
  block: number;
}

/** A curve with the value of each interval; NaN if unknown. */
export interface Curve extends CurveEntry {
  values: Float64Array;
}

/** Hardware counters of a device in equal intervals of the run, percent of their peak. */
export interface CounterLane {
  device: number;
  rows: { name: string; values: (number | null)[] }[];
}

/** A few steps in every scenario of the simulation. */
export interface ReplayEntry {
  /** Name of the scenario, and its condition. */
  variants: [string, string][];
  steps: { device: number; from: number; to: number; count: number; block: number; ends: number[] }[];
}

export interface LeafWords {
  name: string;
  words: string;
  cause: number;
  busy: boolean;
}

export interface CauseWords {
  name: string;
  words: string;
  mark: string;
  without: string | null;
}

/** The report's JSON, as docs/reference/report.md defines it. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Report = any;

export interface Manifest {
  page_version: number;
  source: { title: string; file: string };
  report: Report;
  missing: string[];
  left_out: string[];
  leaves: LeafWords[];
  causes: CauseWords[];
  /** Name and words of what a launching thread may do. */
  activities: [string, string][];
  /** Name and words. */
  limits: [string, string][];
  roofs: [string, string][];
  timeline: Timeline | null;
  /** Best cases worth showing, the largest first, in the words of the text report. */
  gains: Gain[];
  /** Text of each line of the report's `host`, and what it does; of its `calls`; and of its `kernel_lines`. */
  lines: [string, string][];
  call_lines: string[];
  launch_lines: string[];
  /** What captured work of CUDA graphs, with the number of operations and their nanoseconds. */
  graph_work?: [string, number, number][];
  sources: Excerpt[];
}

export interface Gain {
  device: number;
  kind: string;
  /** To follow "if". */
  condition: string;
  step_ns: number;
  words: string;
}

/** A line that the report names, with its surrounding lines. */
export interface Excerpt {
  file: string;
  line: number;
  /** Number of the first line of the text. */
  first: number;
  text: string[];
}

export interface Names {
  names: [string, number][];
  configs: number[][];
  stacks: [number, number, number, number][];
  subjects: [string, number][];
  /** What captured nodes of CUDA graphs; the first is that of other work, the second of unknown nodes. */
  origins?: Origin[];
}

/** What captured nodes of CUDA graphs. All but the last three are names; 0 is none. */
export interface Origin {
  at: number;
  module: number;
  operators: number;
  /** Name of a block of operations. */
  label: number;
  stack: number;
  /** Operations of the whole run, and their nanoseconds. */
  count: number;
  total_ns: number;
}

/** Events of a chunk in order of their start, by column. */
export interface Events {
  count: number;
  begin: Float64Array;
  duration: Float64Array;
  values: Float64Array[];
  /** Latest end up to each event; it never decreases. */
  reach: Float64Array;
}

/** Added to the number of a leaf where a gap ends. */
export const GAP_END = 32;
/** Maximum number of decoded chunks in memory. */
const CACHE = 64;
const VERSION = 2;

/** Value of each letter of a block by its code: printable letters except those with a meaning in HTML. */
const LETTERS = new Uint8Array(127);
for (let code = 33, value = 0; code <= 126; code++) {
  if (!"<>&".includes(String.fromCharCode(code))) LETTERS[code] = value++;
}

/** Two letters of a block are thirteen bits, the lowest first. */
function packed(text: string): Uint8Array {
  const bytes = new Uint8Array(Math.floor((text.length * 13) / 16) + 2);
  let [length, word, bits] = [0, 0, 0];
  for (let at = 0; at < text.length; at += 2) {
    const pair = at + 1 < text.length;
    word |= (LETTERS[text.charCodeAt(at)]! + (pair ? 91 * LETTERS[text.charCodeAt(at + 1)]! : 0)) << bits;
    bits += pair ? 13 : 6;
    for (; bits >= 8; bits -= 8) {
      bytes[length++] = word & 255;
      word >>>= 8;
    }
  }
  return bytes.subarray(0, length);
}

/** Decompresses a block of the page. */
export async function unpack(text: string): Promise<Uint8Array> {
  const raw = packed(text) as Uint8Array<ArrayBuffer>;
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function block(name: string | number): Promise<Uint8Array> {
  const element = document.getElementById(`gpuwhy-${name}`);
  if (!element) throw new Error(`the page has no block ${name}: it is not whole`);
  return unpack(element.textContent ?? "");
}

/** Reads numbers of seven bits per byte, up to 2^53. */
export class Numbers {
  at = 0;
  constructor(readonly bytes: Uint8Array) {}

  next(): number {
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = this.bytes[this.at++];
      if (byte === undefined) throw new Error("a block of the page ends early");
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 128;
    }
  }

  signed(): number {
    return unzigzag(this.next());
  }

  /** A column of numbers: all first bytes, then the second bytes of the numbers that have one, and so on. */
  column(count: number): Float64Array {
    const values = new Float64Array(count);
    let more = new Uint32Array(count);
    for (let i = 0; i < count; i++) more[i] = i;
    for (let scale = 1, left = count; left > 0; scale *= 128) {
      if (this.at + left > this.bytes.length) throw new Error("a block of the page ends early");
      let next = 0;
      for (let k = 0; k < left; k++) {
        const index = more[k]!;
        const byte = this.bytes[this.at++]!;
        values[index]! += (byte & 0x7f) * scale;
        if (byte >= 0x80) more[next++] = index;
      }
      left = next;
    }
    return values;
  }
}

/** Maps an unsigned number to a signed one. */
function unzigzag(value: number): number {
  return value % 2 ? -(value + 1) / 2 : value / 2;
}

/** Decodes the values of a curve. */
export function curve(bytes: Uint8Array, entry: CurveEntry): Curve {
  const values = new Numbers(bytes).column(entry.intervals);
  let number = 0;
  for (let i = 0; i < values.length; i++) {
    number += unzigzag(values[i]!);
    values[i] = number > 0 ? (number - 1) * entry.step : NaN;
  }
  return { ...entry, values };
}

/** Decodes a chunk. */
export function events(bytes: Uint8Array, count: number, columns: number): Events {
  const numbers = new Numbers(bytes);
  const begin = numbers.column(count);
  const duration = numbers.column(count);
  let end = 0;
  for (let i = 0; i < count; i++) {
    begin[i] = end + unzigzag(begin[i]!);
    end = begin[i]! + duration[i]!;
  }
  const values: Float64Array[] = [];
  for (let column = 0; column < columns; column++) {
    const of = numbers.column(count);
    let value = 0;
    for (let i = 0; i < count; i++) of[i] = value += unzigzag(of[i]!);
    values.push(of);
  }
  const reach = new Float64Array(count);
  let latest = 0;
  for (let i = 0; i < count; i++) reach[i] = latest = Math.max(latest, begin[i]! + duration[i]!);
  return { count, begin, duration, values, reach };
}

/** Index of the first of ascending times that is not before `at`. */
export function firstFrom(times: Float64Array, at: number): number {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Data of the page. */
export class Page {
  private cache = new Map<number, Events>();
  private waiting = new Map<number, Promise<Events>>();
  /** Called when requested data has been loaded. */
  arrived: () => void = () => {};

  constructor(readonly manifest: Manifest, readonly names: Names) {
    // Linux numbers the first thread of a process like the process.
    const pid = manifest.report?.process?.pid;
    for (const lane of manifest.timeline?.lanes ?? []) {
      if (lane.label === `thread ${pid}`) lane.label = `main thread (${pid})`;
    }
  }

  static async read(): Promise<Page> {
    const text = new TextDecoder();
    const manifest: Manifest = JSON.parse(text.decode(await block("doc")));
    if (manifest.page_version !== VERSION) throw new Error(`the data are of version ${manifest.page_version}`);
    const named = document.getElementById("gpuwhy-names") ? JSON.parse(text.decode(await block("names"))) : null;
    return new Page(manifest, named ?? { names: [], configs: [], stacks: [], subjects: [] });
  }

  /** A block as bytes. */
  bytes(name: string | number): Promise<Uint8Array> {
    return block(name);
  }

  lanes(kind: Lane["kind"]): Lane[] {
    return this.manifest.timeline?.lanes.filter((lane) => lane.kind === kind) ?? [];
  }

  lane(kind: Lane["kind"], id: number, device?: number | null): Lane | undefined {
    return this.lanes(kind).find((lane) => lane.id === id && (device === undefined || lane.device === device));
  }

  name(index: number): string {
    return this.names.names[index]?.[0] ?? "?";
  }

  kind(index: number): number {
    return this.names.names[index]?.[1] ?? 0;
  }

  /** What captured an operation of a CUDA graph; `null` for other work. */
  origin(index: number): Origin | null {
    return index > 0 ? (this.names.origins?.[index] ?? null) : null;
  }

  /** Kind and name of a subject, as in the report's gaps. */
  subject(index: number): [string, string] {
    const [kind, name] = this.names.subjects[index] ?? ["none", 0];
    return [kind, kind === "none" ? "" : this.name(name)];
  }

  /** Frames of a stack, the innermost first. */
  stack(index: number): { text: string; file: string; line: number }[] {
    const frames = [];
    for (let at = index; at > 0 && frames.length < 256; ) {
      const [caller, name, file, line] = this.names.stacks[at]!;
      frames.push({ text: this.name(name), file: this.name(file), line });
      at = caller;
    }
    return frames;
  }

  /** Name of a thread. */
  thread(id: number): string {
    return this.lane("thread", id)?.label ?? `thread ${id}`;
  }

  /** Start of the time after start-up of a device; its whole time without one. */
  steadyFrom(device: number): number {
    const lane = this.lane("device", device, device);
    const of = this.manifest.report.devices.find((row: { id: number }) => row.id === device);
    const steady = Object.values<number>(of?.steady_leaves ?? {}).reduce((sum, nanos) => sum + nanos, 0);
    const end = Math.max(0, ...(lane?.chunks.map((chunk) => chunk.last) ?? []));
    return steady > 0 ? Math.max(0, end - steady) : 0;
  }

  /** True if all events between two times are in the page. */
  whole(lane: Lane, from: number, to: number): boolean {
    if (lane.refused > 0) return false;
    const windows = this.manifest.timeline?.windows;
    return !windows || windows.some(([begin, end]) => begin <= from && to <= end);
  }

  /** A chunk, if it is loaded; otherwise it is requested. */
  peek(lane: Lane, index: number): Events | undefined {
    const chunk = lane.chunks[index]!;
    const known = this.cache.get(chunk.block);
    if (known) {
      this.cache.delete(chunk.block);
      this.cache.set(chunk.block, known);
    } else if (!this.waiting.has(chunk.block)) {
      void this.chunk(lane, index).then(() => this.arrived());
    }
    return known;
  }

  /** A chunk. */
  chunk(lane: Lane, index: number): Promise<Events> {
    const { block: id, count } = lane.chunks[index]!;
    const known = this.cache.get(id);
    if (known) return Promise.resolve(known);
    const waited = this.waiting.get(id);
    if (waited) return waited;
    const read = block(id).then((bytes) => {
      const found = events(bytes, count, lane.columns.length);
      this.cache.set(id, found);
      this.waiting.delete(id);
      for (const oldest of this.cache.keys()) {
        if (this.cache.size <= CACHE) break;
        this.cache.delete(oldest);
      }
      return found;
    });
    this.waiting.set(id, read);
    return read;
  }

  /** The chunks that overlap a time. */
  chunksIn(lane: Lane, from: number, to: number): number[] {
    const found: number[] = [];
    lane.chunks.forEach((chunk, index) => {
      if (chunk.first < to && chunk.last >= from) found.push(index);
    });
    return found;
  }

  /** Approximate number of events that overlap a time. */
  estimate(lane: Lane, from: number, to: number): number {
    let count = 0;
    for (const index of this.chunksIn(lane, from, to)) {
      const { first, last, count: all } = lane.chunks[index]!;
      const part = (Math.min(to, last) - Math.max(from, first)) / Math.max(1, last - first);
      count += all * Math.min(1, Math.max(part, 1 / all));
    }
    return count;
  }

  /** Visits the events that overlap a time, in order within each chunk; waits for chunks. */
  async visit(lane: Lane, from: number, to: number, each: (events: Events, i: number) => void): Promise<void> {
    for (const index of this.chunksIn(lane, from, to)) {
      visitChunk(await this.chunk(lane, index), from, to, each);
    }
  }
}

/** Visits the events of a chunk that overlap a time. */
export function visitChunk(of: Events, from: number, to: number, each: (events: Events, i: number) => void): void {
  const end = firstFrom(of.begin, to);
  // Earlier events may overlap the time, too.
  for (let i = Math.min(firstFrom(of.reach, from), end); i < end; i++) {
    if (of.begin[i]! + of.duration[i]! > from || of.begin[i]! >= from) each(of, i);
  }
}
