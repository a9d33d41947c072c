import assert from "node:assert/strict";
import { test } from "node:test";
import { hasLimits, largest, wordsOf } from "../src/limits";
import style from "../src/page.css";
import { duration, marks, moment } from "../src/format";
import { fromFragment, key, panned, SHORTEST, toFragment, zoomed } from "../src/view";

const TOTAL = 1_000_000;
const start = fromFragment("", TOTAL);

test("what is looked at survives the address", () => {
  const view = { ...start, from: 10, to: 5_000, selected: [20, 30] as [number, number], tab: "kernels", variant: 3, name: 7, leaf: 12, device: 2, folded: ["o"], hidden: ["t12", "g0"] };
  assert.deepEqual(fromFragment("#" + toFragment(view), TOTAL), view);
  for (const wrong of ["v=9-1", "v=a-b", "v=0-99999999999", "t=<b>", "g=-", "x", "v=5-5", "w=1e9", "f=<b>", "h="]) {
    const found = fromFragment(wrong, TOTAL);
    assert.ok(found.from >= 0 && found.to <= TOTAL && found.to - found.from >= SHORTEST, wrong);
    assert.match(found.tab, /^[a-z]+$/);
  }
});

test("zooming keeps the place under the pointer, within the run", () => {
  const near = zoomed(start, 0.1, 0.25, TOTAL);
  assert.equal(near.from + (near.to - near.from) * 0.25, TOTAL * 0.25);
  let view = start;
  for (let i = 0; i < 100; i++) view = zoomed(view, 0.5, 0.9, TOTAL);
  assert.ok(view.to - view.from >= SHORTEST - 1e-6);
  for (let i = 0; i < 100; i++) view = zoomed(view, 2, 0.1, TOTAL);
  assert.deepEqual([view.from, view.to], [0, TOTAL]);
  assert.equal(panned(near, -100, TOTAL).from, 0);
  assert.equal(panned(near, 100, TOTAL).to, TOTAL);
});

test("all keys of the timeline", () => {
  const near = key(start, "w", TOTAL)!;
  assert.ok(near.to - near.from < TOTAL);
  assert.ok(key(near, "d", TOTAL)!.from > near.from && key(near, "a", TOTAL)!.from < near.from);
  assert.ok(key(near, "s", TOTAL)!.to - key(near, "s", TOTAL)!.from > near.to - near.from);
  assert.deepEqual(key(near, "f", TOTAL), start);
  assert.equal(key(near, "Enter", TOTAL), null);
  const chosen = key({ ...near, selected: [5_000, 6_000] }, "Enter", TOTAL)!;
  assert.ok(chosen.from <= 5_000 && chosen.to >= 6_000 && chosen.to - chosen.from < 5_000);
  assert.equal(key({ ...near, selected: [1, 2], name: 4 }, "Escape", TOTAL)!.selected, null);
  assert.equal(key(near, "q", TOTAL), null);
});

test("marks of an axis can be reported apart", () => {
  for (const [from, to] of [[0, 1e9], [3_123_328_671, 3_125_964_907], [0, 150], [7, 8]] as [number, number][]) {
    const all = marks(from, to, 10);
    assert.ok(all.length <= 11 && all.every((at) => at >= from && at <= to));
    const texts = all.map((at) => moment(at, all.length > 1 ? all[1]! - all[0]! : to - from));
    assert.equal(new Set(texts).size, texts.length, texts.join(" "));
  }
  assert.deepEqual([0, 999, 1500, 999_960, 2.5e9].map(duration), ["0 ns", "999 ns", "1.5 us", "1.0 ms", "2.50 s"]);
});

/** Contrast of two colors by WCAG 2. */
function contrast(a: string, b: string): number {
  const light = (color: string) => {
    const [red, green, blue] = [1, 3, 5].map((at) => {
      const part = parseInt(color.slice(at, at + 2), 16) / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
  };
  const [x, y] = [light(a), light(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}

test("colors stand out from the ground in both themes", () => {
  const themes = String(style).split("}").filter((rule) => rule.includes("--ground:"));
  assert.equal(themes.length, 3);
  for (const theme of themes) {
    const color = (name: string) => theme.match(new RegExp(`--${name}:\\s*(#[0-9a-f]{6})`))![1]!;
    for (const ground of ["ground", "panel"]) {
      for (const text of ["text", "quiet", "accent", "good", "bad"]) {
        assert.ok(contrast(color(text), color(ground)) >= 4.5, `${text} on ${ground}: ${contrast(color(text), color(ground))}`);
      }
      const causes = ["gpu_compute", "communication", "copy", "sync", "allocator", "host_cpu", "data_loading", "launch", "kernel_build", "other_process", "no_work", "cannot_tell"];
      for (const cause of causes) {
        assert.ok(contrast(color(cause), color(ground)) >= 3, `${cause} on ${ground}: ${contrast(color(cause), color(ground))}`);
      }
    }
  }
});

test("a kernel's largest limits are reported in words", () => {
  const words: [string, string][] = [["memory", "memory"], ["issue", "instruction issue"], ["latency", "latency"]];
  assert.equal(largest({ issue: 0.42, latency: 0.476, memory: 0.049 }, words), "latency 48 %, instruction issue 42 %");
  assert.equal(wordsOf(words, "issue"), "instruction issue");
  assert.equal(wordsOf(words, null), "");
  assert.ok(hasLimits({ devices: [{}, { compute_limits: {} }] }) && !hasLimits({ devices: [{ compute_limits: null }] }));
});
