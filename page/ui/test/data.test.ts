import assert from "node:assert/strict";
import { test } from "node:test";
import { curve, events, firstFrom, GAP_END, Page, unpack, visitChunk, type Lane, type Manifest, type Names } from "../src/data";
import { longest } from "../src/evidence";
import { boxes, captured, lost, type Frame } from "../src/flame";
import { blockAt, blocks } from "../src/modules";
import { meanOf } from "../src/paint";
import { eventIn } from "../src/selection";
import { breakdown, estimated, Sums } from "../src/sums";

/** Numbers in the encoder's format. */
function packed(numbers: number[]): Uint8Array {
  const bytes: number[] = [];
  for (let value of numbers) {
    for (; value >= 128; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
    bytes.push(value);
  }
  return Uint8Array.from(bytes);
}
/** Columns in the encoder's format. */
function columns(...all: number[][]): Uint8Array {
  const bytes: number[] = [];
  for (let column of all) {
    while (column.length) {
      bytes.push(...column.map((value) => (value % 128) + (value >= 128 ? 128 : 0)));
      column = column.filter((value) => value >= 128).map((value) => Math.floor(value / 128));
    }
  }
  return Uint8Array.from(bytes);
}
const signed = (value: number) => (value < 0 ? -2 * value - 1 : 2 * value);

test("a chunk is taken apart as it was packed", () => {
  const bytes = columns([signed(10), signed(-15), signed(3)], [20, 5, 2 ** 40], [signed(7), signed(0), signed(-8)]);
  const found = events(bytes, 3, 1);
  assert.deepEqual([...found.begin], [10, 15, 23]);
  assert.deepEqual([...found.duration], [20, 5, 2 ** 40]);
  assert.deepEqual([...found.values[0]!], [7, 7, -1]);
  assert.deepEqual([...found.reach], [30, 30, 23 + 2 ** 40]);
  assert.throws(() => events(bytes.slice(0, -1), 3, 1), /ends early/);
});

test("a curve has its values, and nothing where nothing is known", () => {
  const entry = { device: 0, label: "power", unit: "W", step: 0.1, most: 300, intervals: 4, span_ns: 10, block: 0 };
  const found = curve(columns([signed(0), signed(2001), signed(1000), signed(-3001)]), entry);
  assert.deepEqual([...found.values].map((value) => Math.round(value)), [NaN, 200, 300, NaN]);
  const mean = (from: number, to: number) => meanOf(found, from, to);
  assert.deepEqual([mean(10, 20), mean(10, 30), mean(0, 40), mean(11, 12)].map(Math.round), [200, 250, 250, 200]);
  assert.ok(Number.isNaN(mean(30, 40)) && Number.isNaN(mean(500, 600)));
});

test("a block of the golden page is unpacked", async () => {
  // The encoder's output for "gpuwhy page"; a test of the encoder has the same text.
  assert.equal(new TextDecoder().decode(await unpack("#O$=b[5=*);3h_!!")), "gpuwhy page");
});

test("what overlaps a time is visited, also what began long before it", () => {
  const of = events(columns([signed(0), signed(-990), signed(0), signed(0)], [1000, 10, 10, 10]), 4, 0);
  const seen = (from: number, to: number) => {
    const found: number[] = [];
    visitChunk(of, from, to, (_, i) => found.push(i));
    return found;
  };
  assert.deepEqual(seen(0, 2000), [0, 1, 2, 3]);
  assert.deepEqual(seen(500, 600), [0, 1, 2, 3].filter((i) => of.begin[i]! < 600 && of.begin[i]! + of.duration[i]! > 500));
  assert.equal(firstFrom(of.begin, 11), 1 + [...of.begin].slice(1).findIndex((at) => at >= 11));
});

/** A page with one device lane of segments, and its sums. */
function made(window: number): { page: Page; lane: Lane; sums: Sums; segments: [number, number, number][] } {
  const segments: [number, number, number][] = [];
  let state = 12345;
  const random = (limit: number) => (state = (state * 1103515245 + 12345) % 2147483648) % limit;
  for (let at = 0; at < window; ) {
    const length = Math.min(window - at, 1 + random(977));
    segments.push([at, length, random(4)]);
    at += length;
  }
  const [intervals, span] = [64, Math.ceil(window / 64)];
  const cells = Array.from({ length: 4 }, () => new Array<number>(intervals).fill(0));
  for (const [begin, length, leaf] of segments) {
    for (let at = begin; at < begin + length; at++) cells[leaf]![Math.floor(at / span)]!++;
  }
  const bytes = packed([4, ...cells.flatMap((column, key) => [key, ...column])]);
  const lane: Lane = {
    kind: "device", device: 0, id: 0, label: "GPU 0", columns: ["leaf", "subject", "stack"],
    chunks: [{ block: 0, count: segments.length, first: 0, last: window }],
    sums: 1, events: segments.length, embedded: segments.length, refused: 0,
  };
  const leaves = [0, 1, 2, 3].map((index) => ({ name: `${index}`, words: "", cause: index, busy: index < 2 }));
  const timeline = { windows: null, lanes: [lane], window_ns: window } as unknown as Manifest["timeline"];
  const page = new Page({ leaves, timeline } as Manifest, { names: [], configs: [], stacks: [], subjects: [] });
  const chunk = events(
    columns(
      segments.map(() => 0), segments.map(([, length]) => length),
      segments.map(([, , leaf], i) => signed(leaf + GAP_END - (segments[i - 1] ? segments[i - 1]![2] + GAP_END : 0))),
      segments.map(() => 0), segments.map(() => 0),
    ),
    segments.length, 3,
  );
  page.chunk = () => Promise.resolve(chunk);
  return { page, lane, sums: new Sums(bytes, intervals, span), segments };
}

test("any interval has the exact sum of its segments", async () => {
  const window = 100_000;
  const { page, lane, sums, segments } = made(window);
  for (let i = 0; i < 200; i++) {
    const [a, b] = [(i * 7919) % window, (i * 104729 + 13) % window];
    const [from, to] = a < b ? [a, b] : [b, a + 1];
    const found = await breakdown(page, lane, sums, from, to);
    assert.equal(found.within, 0);
    const wanted = [0, 0, 0, 0];
    for (const [begin, length, leaf] of segments) {
      wanted[leaf]! += Math.max(0, Math.min(to, begin + length) - Math.max(from, begin));
    }
    assert.deepEqual([...found.leaves], wanted, `${from} to ${to}`);
  }
});

test("columns of any zoom touch and sum to the whole", () => {
  const { sums } = made(50_000);
  for (const width of [1, 7, 64, 333, 1000]) {
    let total = 0;
    let before = sums.border(0);
    for (let x = 1; x <= width; x++) {
      const border = sums.border((x / width) * 50_000);
      for (let leaf = 0; leaf < 4; leaf++) total += sums.between(leaf, before, border);
      before = border;
    }
    assert.equal(total, 50_000, `${width} columns`);
  }
});

test("without the segments of an edge the answer says how far it may be off", async () => {
  const { page, lane, sums } = made(10_000);
  lane.refused = 1;
  const found = await breakdown(page, lane, sums, 1234, 5678);
  assert.equal(found.within, sums.span);
  assert.equal([...found.leaves].reduce((a, b) => a + b, 0), found.to - found.from);
});

test("the whole run has the estimate of the report, where it divides what the timeline does not", () => {
  const { page, lane, sums } = made(10_000);
  const leaves = Object.fromEntries([0, 1, 2, 3].map((leaf) => [`${leaf}`, sums.between(leaf, 0, sums.intervals)]));
  const report = (of: object) => ({ devices: [{ id: 1, leaves: {} }, { id: 0, leaves: { ...leaves, ...of } }] });
  page.manifest.report = report({});
  assert.equal(estimated(page, lane, sums), null);
  const divided = { 2: leaves[2]! - 100, 3: leaves[3]! + 100 };
  page.manifest.report = report(divided);
  assert.deepEqual([...estimated(page, lane, sums)!], [leaves[0], leaves[1], divided[2], divided[3]]);
  page.manifest.report = { devices: [] };
  assert.equal(estimated(page, lane, sums), null);
});

test("boxes of a flame graph lie within their callers", () => {
  const frame = (text: string, nanos: number, ...children: Frame[]): Frame => ({
    text, nanos, children: new Map(children.map((child) => [child.text, child])),
  });
  const all = boxes(frame("all", 100, frame("a", 60, frame("b", 20)), frame("c", 40)));
  const of = (text: string) => all.find((box) => box.frame.text === text)!;
  assert.deepEqual(["all", "a", "b", "c"].map((text) => of(text).width), [1000, 600, 200, 400]);
  assert.deepEqual(["a", "b", "c"].map((text) => [of(text).x, of(text).depth]), [[0, 1], [0, 2], [600, 1]]);
});

/** A device that is idle for 300 ns in start-up and for 100 ns after it, when the thread sleeps at a line; the first stack is cut. */
function starting() {
  const deep = Array.from({ length: 64 }, (_, i) => [i, 1, 2, 9] as [number, number, number, number]);
  const names = {
    names: [["?", 0], ["inner", 9], ["a/train.py", 9], ["sleep", 9]], configs: [], subjects: [["none", 0], ["host", 3]],
    stacks: [[0, 0, 0, 0], ...deep, [0, 1, 2, 12]],
  } as unknown as Names;
  const rows = [[300, 1, 64], [50, 0, 0], [100, 1, 65], [50, 0, 0]] as const;
  const steps = (of: number[]) => of.map((value, i) => signed(value - (of[i - 1] ?? 0)));
  const chunk = events(
    columns(
      rows.map(() => 0), rows.map(([lasted]) => lasted), steps(rows.map(([, leaf]) => leaf)), steps(rows.map(([, leaf]) => leaf)),
      steps(rows.map(([, , stack]) => stack)),
    ),
    rows.length, 3,
  );
  const lane = { kind: "device", device: 0, id: 0, label: "GPU 0", chunks: [{ block: 0, count: 4, first: 0, last: 500 }] } as unknown as Lane;
  const leaves = [{ name: "compute", cause: 0, busy: true }, { name: "host_cpu", cause: 1, busy: false }];
  const report = { process: { pid: 1 }, devices: [{ id: 0, steady_leaves: { compute: 100, host_cpu: 100 } }] };
  const causes = [{ name: "gpu_compute" }, { name: "host_cpu" }];
  const page = new Page({ leaves, causes, report, timeline: { windows: null, lanes: [lane] } } as unknown as Manifest, names);
  page.chunk = () => Promise.resolve(chunk);
  return page;
}

test("the flame graph is of the time after start-up, and says where a stack is cut", async () => {
  const page = starting();
  const from = page.steadyFrom(0);
  const tops = async (from: number) => [...(await lost(page, 0, from)).root.children.values()].map(({ text, nanos }) => [text, nanos]);
  assert.equal(from, 300);
  assert.deepEqual(await tops(from), [["inner train.py:12", 100]]);
  assert.deepEqual(await tops(200), [["… outer frames not recorded", 100], ["inner train.py:12", 100]]);
});

test("a sentence leads to the longest wait after start-up at its line, or of its cause", async () => {
  const page = starting();
  const at = async (topic: Parameters<typeof longest>[1]) => (await longest(page, topic))?.slice(1);
  const line = { file: "train.py", line: 12, activities: ["code", "sleep"] };
  assert.deepEqual(await at(line), [350, 450]);
  for (const other of [{ line: 9 }, { activities: ["code"] }, { file: "rain.py" }]) assert.equal(await at({ ...line, ...other }), undefined);
  assert.deepEqual(await at({ cause: "host_cpu" }), [350, 450]);
  assert.equal(await at({ cause: "gpu_compute" }), undefined);
});

test("a sentence about a line leads to a wait in which a sample saw the line, not to a longer one that it explains", async () => {
  for (const [sampled, wanted] of [[360, [350, 450]], [470, undefined], [450, [350, 450]]] as const) {
    const page = starting();
    const wait = page.chunk;
    const lane = { kind: "samples", device: null, id: 7, label: "", chunks: [{ block: 1, count: 1, first: 0, last: sampled }] } as unknown as Lane;
    page.manifest.timeline!.lanes.push(lane);
    const sample = events(columns([0], [sampled], [signed(65)]), 1, 1);
    page.chunk = (of, index) => (of === lane ? Promise.resolve(sample) : wait(of, index));
    const found = await longest(page, { file: "train.py", line: 12, activities: ["sleep"] });
    assert.deepEqual(found?.slice(1), wanted);
    assert.deepEqual((await longest(page, { cause: "host_cpu" }))?.slice(1), [350, 450]);
  }
});

/** A page with a stream of two replays: name, bytes, replay and origin of each operation. */
function replays() {
  const text = ["?", "origin unknown", "Attention > Linear", "m.py:1 (f)", "m.py:2 (f)", "copy"];
  const origin = (at: number, module: number, label: number, stack: number, time: number) => (
    { at, module, operators: 0, label, stack, count: 1, total_ns: time });
  const names = {
    names: text.map((name) => [name, 2] as [string, number]), configs: [], subjects: [],
    stacks: [[0, 0, 0, 0], [0, 3, 3, 1]] as [number, number, number, number][],
    origins: [origin(0, 0, 0, 0, 0), origin(1, 0, 1, 0, 5), origin(3, 2, 2, 1, 20), origin(4, 2, 2, 1, 8)],
  };
  const rows = [[0, 10, 7, 2], [12, 8, 7, 3], [30, 5, 7, 1], [40, 5, 7, 2], [50, 5, 8, 2], [60, 5, 9, 0]] as const;
  const steps = (of: number[]) => of.map((value, i) => signed(value - (of[i - 1] ?? 0)));
  const chunk = events(
    columns(
      rows.map(([at], i) => signed(at - (i ? rows[i - 1]![0] + rows[i - 1]![1] : 0))), rows.map(([, lasted]) => lasted),
      steps(rows.map(() => 5)), steps(rows.map(() => 64)), steps(rows.map((row) => row[2])), steps(rows.map((row) => row[3])),
    ),
    rows.length, 4,
  );
  const lane = {
    kind: "stream", device: 0, id: 7, label: "GPU 0 stream 7", columns: ["name", "detail", "correlation", "origin"],
    chunks: [{ block: 0, count: rows.length, first: 0, last: 65 }], nodes: 5,
  } as unknown as Lane;
  const page = new Page({ leaves: [], timeline: { windows: null, lanes: [lane] } } as unknown as Manifest, names);
  page.chunk = () => Promise.resolve(chunk);
  return { page, chunk, lane };
}

test("adjacent operations of a replay that one module captured are a block", () => {
  const { page, chunk } = replays();
  const found = blocks(page, chunk, 0, 100).map(({ from, to, label }) => [from, to, page.name(label)]);
  const module = "Attention > Linear";
  assert.deepEqual(found, [[0, 20, module], [30, 35, "origin unknown"], [40, 45, module], [50, 55, module]]);
  const whole = blockAt(page, chunk, 11, 0)!;
  assert.deepEqual([whole.from, whole.to, [...whole.lines]], [0, 20, [[3, 1], [4, 1]]]);
  assert.deepEqual([25, 62].map((at) => blockAt(page, chunk, at, 0)), [null, null]);
});

test("an operation says what captured it, or that this is unknown", async () => {
  const { page, lane } = replays();
  const facts = async (at: number) => {
    const row = { kind: lane.kind, label: lane.label, lane, device: 0, top: 0, height: 1 };
    const { facts } = (await eventIn(page, { row, at, slack: 0 }))!;
    return facts.filter(([name]) => ["captured at", "module", "operators"].includes(name));
  };
  assert.deepEqual(await facts(14), [["captured at", "m.py:2 (f)"], ["module", "Attention > Linear"]]);
  assert.deepEqual(await facts(32), [["captured at", "origin unknown"]]);
  assert.deepEqual(await facts(62), []);
});

test("the flame graph of CUDA graphs has the stacks that captured them", () => {
  const root = captured(replays().page);
  const found = [...root.children.values()].map(({ text, nanos }) => [text, nanos]);
  assert.deepEqual([root.nanos, found], [33, [["origin unknown", 5], ["m.py:1 (f) m.py:1 (f):1", 28]]]);
});
