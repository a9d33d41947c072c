import assert from "node:assert/strict";
import { test } from "node:test";
import { topicOf } from "../src/evidence";
import { Page, type Curve, type Lane, type Manifest, type Names } from "../src/data";
import { layout, OTHERS } from "../src/rows";
import { following, matching, named } from "../src/search";

const lane = (kind: Lane["kind"], id: number, label: string, more: Partial<Lane> = {}): Lane =>
  ({ kind, id, label, device: null, columns: ["name"], chunks: [], sums: null, events: 1, embedded: 1, refused: 0, ...more });
const lanes = [
  lane("device", 0, "GPU 0", { device: 0 }), lane("stream", 7, "GPU 0 stream 7", { device: 0 }),
  lane("thread", 10, "thread 10"), lane("samples", 10, "thread 10"), lane("thread", 11, "loader (11)"),
  lane("ranges", 12, "thread 12", { levels: 2 }),
];
const report = {
  process: { pid: 10 }, api: [{ name: "cudaLaunchKernel", total_ns: 900, calls: 3 }], ranges: null,
  devices: [{ id: 0, kernels: [{ name: "gemm_b", total_ns: 50, count: 2 }, { name: "gemm_a<float, 4>", total_ns: 70, count: 1 }] }],
};
const names = {
  names: [["", 0], ["gemm_b", 0], ["a range of gemm", 8], ["gemm_a<float, 4>", 0], ["cudaLaunchKernel", 4], ["a copy", 2], ["train", 9]],
  configs: [], stacks: [], subjects: [["none", 0], ["kernel", 1], ["other_transfer", 5]],
} as unknown as Names;
const activities = [["code", "running code"], ["sleep", "sleeping"]];
const page = new Page({ report, activities, timeline: { lanes, steps: [] } } as unknown as Manifest, names);
const labels = (folded: string[], hidden: string[] = []) =>
  layout(page, [], { folded, hidden }, (thread) => thread.id === 10).rows.map((row) => row.label);

test("threads without later launches are one row, which unfolds; any group can be hidden", () => {
  assert.deepEqual(labels([]), ["whole run", "time", "GPU 0", "stream 7", "main thread (10)", "samples of main thread (10)", "2 other threads"]);
  assert.deepEqual(labels([OTHERS]).slice(6), ["2 other threads", "loader (11)", "ranges of thread 12"]);
  assert.deepEqual(labels(["g0", "t10"]).slice(2), ["GPU 0", "main thread (10)", "2 other threads"]);
  assert.deepEqual(labels([OTHERS], ["g0", "t10", "t11"]).slice(2), ["2 other threads", "ranges of thread 12"]);
  const { rows, groups } = layout(page, [], { folded: [], hidden: [OTHERS] }, (thread) => thread.id === 10);
  assert.ok(rows.every((row, i) => i === 0 || row.top >= rows[i - 1]!.top + rows[i - 1]!.height));
  assert.deepEqual(groups.map((group) => group.id), ["g0", "t10", OTHERS], "what is hidden can be shown again");
});

test("a monitored run has rows of readings and samples without a device", () => {
  const of = new Page({ report: { ...report, devices: [] }, activities, timeline: { lanes: [lane("samples", 10, "thread 10")], steps: [] } } as unknown as Manifest, names);
  const curve = { device: 0, label: "GPU 0 busy", unit: "%" } as Curve;
  const { rows } = layout(of, [curve], { folded: [], hidden: [] });
  assert.deepEqual(rows.map((row) => row.label), ["whole run", "time", "GPU 0 busy", "samples of main thread (10)"]);
  assert.equal(rows[2]!.curve, curve);
});

test("names that match: kernels first, by their time; only names of events", () => {
  const all = named(page);
  assert.deepEqual(matching(all, "GEMM").map((one) => one.text), ["gemm_a<float, 4>", "gemm_b", "a range of gemm"]);
  assert.deepEqual(matching(all, "gemm_b").map((one) => one.text), ["gemm_b"]);
  assert.deepEqual(matching(all, "a").map((one) => one.kind), ["kernel", "call", "range"]);
  assert.deepEqual([matching(all, " "), matching(all, "train"), matching(all, "copy")], [[], [], []]);
  const found = (text: string) => matching(all, text).map((one) => one.text);
  assert.deepEqual(found("FLOAT gemm"), ["gemm_a<float, 4>"]);
  assert.deepEqual([found("gemm b"), found("range_of"), found("gemm train")], [["gemm_b"], ["a range of gemm"], []]);
});

test("the next and the previous event wrap around", () => {
  const all = { begin: Float64Array.of(10, 20, 30), end: Float64Array.of(11, 21, 31), lanes: [] };
  assert.deepEqual([following(all, 15, null, true), following(all, 99, null, true), following(all, 15, null, false)], [1, 0, 0]);
  assert.deepEqual([following(all, 0, 2, true), following(all, 0, 0, false), following(all, 0, 1, true)], [0, 2, 2]);
});

test("sentences of the report lead to kernels and lines", () => {
  const line = { file: "train.py", line: 12 };
  assert.deepEqual(topicOf(page, "Running code at train.py:12 (main) takes 3 ms."), { ...line, activities: ["code"] });
  assert.deepEqual(
    topicOf(page, "The CPU's work at train.py:12 (main) takes 3 ms a step (9 %: running code 6 %, sleeping 3 %)."),
    { ...line, activities: ["code", "sleep"] },
  );
  assert.deepEqual(topicOf(page, "Kernel gemm_b ran 3 times: 3 ms, 63 % of it captured at m.py:38 (forward)."), { kernel: "gemm_b" });
  assert.equal(topicOf(page, "The CPU launches at train.py:12 (main) (100 %), of 73 samples in such calls."), null);
  assert.equal(topicOf(page, "96 % of the launches found the GPU idle."), null);
});
