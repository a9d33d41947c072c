// The panel below the timeline: the exact breakdown of an interval, or details of one gap or event.

import { useEffect, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { firstFrom, GAP_END, type Curve, type Lane, type Page } from "./data";
import { bytes, count, duration, instant, percent, quantity, shortFile } from "./format";
import { blockAt, ORIGIN } from "./modules";
import { eventAt, meanOf } from "./paint";
import { breakdown, estimated, segments, type Breakdown, type Part, type Sums } from "./sums";
import type { Hit } from "./timeline";

/** Maximum number of chunks of calls that are searched for a launch. */
const MOST_CHUNKS = 16;

/** Details of one gap. */
export interface Gap {
  kind: "gap";
  device: number;
  from: number;
  to: number;
  parts: Part[];
  /** The operation that ended it, its stream, and the call that launched it. */
  ended: { text: string; stream: number } | null;
  launch: { thread: number; begin: number; duration: number; name: string } | null;
  samples: { text: string; count: number; stack: number }[];
  sampled: number;
}

/** One event of a lane. */
export interface Picked {
  kind: "event";
  title: string;
  from: number;
  to: number;
  name: number;
  facts: [string, string][];
  /** The other end of a launch. */
  other: { label: string; from: number; to: number } | null;
}

export type Answer = Gap | Picked;

/** Details of the gap of a device at a time; `null` without a gap. */
export async function gapAt(page: Page, device: number, at: number): Promise<Gap | null> {
  const lane = page.lane("device", device, device);
  const found = lane && (await idleAround(page, lane, at));
  if (!found) return null;
  const { parts, last } = found;
  const [from, to] = [parts[0]!.begin, parts[parts.length - 1]!.begin + parts[parts.length - 1]!.duration];
  const gap: Gap = { kind: "gap", device, from, to, parts, ended: null, launch: null, samples: [], sampled: 0 };
  if (!last) return gap;
  const [operation, stream, thread, correlation] = last.slice(3) as [number, number, number, number];
  const [kind, name] = page.subject(operation);
  gap.ended = { text: name || kind.replace(/_/g, " "), stream };
  if (thread > 0) {
    gap.launch = await callOf(page, thread - 1, correlation, to);
    await addSamples(page, gap, thread - 1);
  }
  return gap;
}

/** The adjacent idle segments around a time, and the information at the end of their gap. */
async function idleAround(page: Page, lane: Lane, at: number): Promise<{ parts: Part[]; last: number[] | null } | null> {
  const chunks = page.chunksIn(lane, at, at + 1);
  for (const index of chunks) {
    const events = await page.chunk(lane, index);
    const i = firstFrom(events.reach, at + 1);
    if (i >= events.count || events.begin[i]! > at) continue;
    const busy = (place: number) => page.manifest.leaves[events.values[0]![place]! % GAP_END]!.busy;
    if (busy(i)) return null;
    let [first, last] = [i, i];
    while (first > 0 && !busy(first - 1) && events.begin[first - 1]! + events.duration[first - 1]! === events.begin[first]) {
      first--;
    }
    const ends = () => events.values[0]![last]! >= GAP_END;
    while (!ends() && last + 1 < events.count && !busy(last + 1)) last++;
    const from = events.begin[first]!;
    const to = events.begin[last]! + events.duration[last]!;
    const row = ends() ? events.values.map((column) => column[last]!) : null;
    // A gap may continue in the previous or the next chunk.
    const parts = await segments(page, lane, from, to);
    return { parts, last: row };
  }
  return null;
}

/** The launching call: the newest one of its thread with this correlation id before `to`. */
async function callOf(page: Page, thread: number, correlation: number, to: number): Promise<Gap["launch"]> {
  const lane = page.lane("thread", thread);
  if (!lane) return null;
  const chunks = page.chunksIn(lane, 0, to + 1).sort((a, b) => lane.chunks[b]!.last - lane.chunks[a]!.last);
  for (const index of chunks.slice(0, MOST_CHUNKS)) {
    const events = await page.chunk(lane, index);
    const ids = events.values[2]!;
    for (let i = firstFrom(events.begin, to + 1) - 1; i >= 0; i--) {
      if (ids[i] !== correlation) continue;
      return { thread, begin: events.begin[i]!, duration: events.duration[i]!, name: page.name(events.values[0]![i]!) };
    }
  }
  return null;
}

/** Sampled activity of the launching thread during the gap. */
async function addSamples(page: Page, gap: Gap, thread: number): Promise<void> {
  const lane = page.lane("samples", thread);
  if (!lane) return;
  const seen = new Map<number, number>();
  await page.visit(lane, gap.from, gap.to, (events, i) => {
    const at = events.begin[i]! + events.duration[i]!;
    if (at < gap.from || at > gap.to) return;
    gap.sampled++;
    const stack = events.values[0]![i]!;
    seen.set(stack, (seen.get(stack) ?? 0) + 1);
  });
  // Samples at one place are one row, regardless of their callers.
  const places = new Map<string, Gap["samples"][0]>();
  for (const [stack, count] of seen) {
    const frames = page.stack(stack);
    const own = frames.find((frame) => frame.line > 0 && !/site-packages|dist-packages|\/lib\/python|^<frozen/.test(frame.file));
    const frame = own ?? frames.find((frame) => !frame.file.startsWith("<frozen importlib")) ?? frames[0];
    const line = frame && frame.line > 0 ? `:${frame.line}` : "";
    const text = frame ? `${shortFile(frame.file)}${line} (${frame.text})` : "no stack";
    const known = places.get(text);
    places.set(text, known ? { ...known, count: known.count + count } : { text, count, stack });
  }
  gap.samples = [...places.values()].sort((a, b) => b.count - a.count);
}

/** What captured an operation of a CUDA graph. */
function captured(page: Page, origin: number): [string, string][] {
  const of = page.origin(origin);
  if (!of) return [];
  const facts: [string, string][] = [["captured at", page.name(of.at)]];
  if (of.module) facts.push(["module", page.name(of.module)]);
  if (of.operators) facts.push(["operators", page.name(of.operators)]);
  return facts;
}

/** The event of a lane under the pointer. */
export async function eventIn(page: Page, { row, at, slack }: Hit): Promise<Picked | null> {
  const lane = row.lane;
  if (!lane) return null;
  for (const index of page.chunksIn(lane, at - slack, at + slack + 1)) {
    const events = await page.chunk(lane, index);
    if (row.kind === "modules") {
      const block = blockAt(page, events, at, slack);
      if (!block) continue;
      const { from, to, label, lines } = block;
      const facts: [string, string][] = [["begin", instant(from)], ["duration", `${duration(to - from)} (${to - from} ns)`]];
      lines.forEach((operations, line) => facts.push(["captured at", `${page.name(line)}: ${count(operations)}`]));
      return { kind: "event", title: page.name(label), from, to, name: label, facts, other: null };
    }
    const i = eventAt(events.begin, events.duration, at, slack);
    if (i < 0) continue;
    const values = events.values.map((column) => column[i]!);
    const [from, lasted] = [events.begin[i]!, events.duration[i]!];
    const facts: [string, string][] = [["begin", instant(from)], ["duration", `${duration(lasted)} (${lasted} ns)`]];
    let title = page.name(values[0]!);
    let other: Picked["other"] = null;
    if (lane.kind === "stream") {
      const config = page.names.configs[values[1]!];
      if (page.kind(values[0]!) >= 2) facts.push(["bytes", `${bytes(values[1]!)} (${count(values[1]!)})`]);
      else if (config && values[1]! > 0) {
        const [, gx, gy, gz, bx, by, bz, registers, fixed, dynamic] = config;
        facts.push(["grid", `${gx} x ${gy} x ${gz}`], ["block", `${bx} x ${by} x ${bz}`]);
        facts.push(["registers a thread", `${registers}`], ["shared memory", `${bytes(fixed! + dynamic!)} a block`]);
      }
      facts.push(...captured(page, values[ORIGIN] ?? 0));
      other = await linked(page, page.lanes("thread"), values[2]!, from, false);
    } else if (lane.kind === "thread") {
      if (values[1]) facts.push(["result", `error ${values[1]}`]);
      other = await linked(page, page.lanes("stream"), values[2]!, from, true);
    } else if (lane.kind === "samples") {
      title = "Host sample";
      facts.push(["on a core", duration(values[1]!)], ["ready for one", duration(values[2]!)]);
      page.stack(values[0]!).forEach((frame, depth) => {
        facts.push([depth ? "called by" : "at", `${frame.text}  ${frame.file}${frame.line ? `:${frame.line}` : ""}`]);
      });
    }
    return { kind: "event", title, from, to: from + lasted, name: lane.kind === "samples" ? 0 : values[0]!, facts, other };
  }
  return null;
}

/** The nearest event with a correlation id in lanes whose third column has it. */
async function linked(page: Page, lanes: Lane[], id: number, at: number, later: boolean): Promise<Picked["other"]> {
  const reach = 2e9;
  let best: Picked["other"] = null;
  for (const lane of lanes) {
    for (const index of page.chunksIn(lane, later ? at : at - reach, later ? at + reach : at + 1)) {
      const events = await page.chunk(lane, index);
      const ids = events.values[2]!;
      for (let i = firstFrom(events.begin, later ? at : at - reach); i < events.count; i++) {
        if (ids[i] !== id) continue;
        const [from, name] = [events.begin[i]!, page.name(events.values[0]![i]!)];
        const label = later ? `its work: ${name} on ${lane.label}` : `launched by ${name} on ${lane.label}`;
        if (!best || Math.abs(best.from - at) > Math.abs(from - at)) {
          best = { label, from, to: from + events.duration[i]! };
        }
        break;
      }
    }
    if (best) break;
  }
  return best;
}

/** Mark of a cause: letters next to the color. */
export function Mark({ page, cause }: { page: Page; cause: number }) {
  const of = page.manifest.causes[cause]!;
  return <span class={`mark m-${of.name}`}>{of.mark}</span>;
}

/** Rows of causes with their time, as parts of `whole` or else of their sum. */
export function Leaves(props: { page: Page; of: { leaf: number; nanos: number; note?: ComponentChildren }[]; whole?: number }) {
  const { page, of } = props;
  const total = props.whole ?? (of.reduce((sum, row) => sum + row.nanos, 0) || 1);
  return (
    <table>
      <tbody>
        {of.map((row) => (
          <tr>
            <td><Mark page={page} cause={page.manifest.leaves[row.leaf]!.cause} /></td>
            <td><span>{page.manifest.leaves[row.leaf]!.words}</span>{row.note && <small class="name">{row.note}</small>}</td>
            <td class="n" title={`${row.nanos} ns`}>{duration(row.nanos)}</td>
            <td class="n">{percent(row.nanos / total)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Time by cause of the selected interval. */
export function Interval(props: { page: Page; lane: Lane; sums: Sums; curves: Curve[]; from: number; to: number }) {
  const [found, set] = useState<Breakdown | null>(null);
  const { page, lane, sums, from, to } = props;
  useEffect(() => {
    let current = true;
    void breakdown(page, lane, sums, from, to).then((answer) => current && set(answer));
    return () => {
      current = false;
    };
  }, [lane, from, to]);
  if (!found) return <p>…</p>;
  const estimate = estimated(page, lane, sums);
  const whole = found.from <= 0 && found.to >= page.manifest.timeline!.window_ns;
  const of = whole && estimate ? estimate : found.leaves;
  const rows = [...of].map((nanos, leaf) => ({ leaf, nanos })).filter((row) => row.nanos > 0);
  const cpu = page.manifest.leaves.findIndex((leaf) => leaf.name === "host_cpu");
  const words = `"${page.manifest.leaves[cpu]?.words}"`;
  const sum = rows.reduce((total, row) => total + row.nanos, 0);
  const outside = found.to - found.from - sum;
  const means = props.curves
    .filter((curve) => curve.device === lane.device)
    .map((curve) => [curve, meanOf(curve, found.from, found.to)] as const)
    .filter(([, mean]) => !Number.isNaN(mean));
  return (
    <div id="interval">
      <h2>
        {duration(found.to - found.from)} of {lane.label}{" "}
        <small>{found.within ? `to ${duration(found.within)}: single events are not in this page` : of === estimate ? "with an estimate" : "exact"}</small>
      </h2>
      <Leaves page={page} of={rows.sort((a, b) => b.nanos - a.nanos)} />
      {estimate && found.leaves[cpu]! > 0 && (
        <p>
          {whole
            ? `After start-up, time outside CUDA that no host sample saw is divided like the sampled time; the timeline shows it as ${words}.`
            : `${words} includes time that no host sample saw; the sums of the whole run divide that after start-up like the sampled time.`}
        </p>
      )}
      <p>
        Sum <span title={`${sum} ns`}>{duration(sum)}</span>
        {outside > 0 ? `; ${duration(outside)} lie before the first or after the last operation` : ""}.
      </p>
      {means.length > 0 && (
        <dl id="means">
          {means.map(([curve, mean]) => [
            <dt>{curve.label}</dt>, <dd>{quantity(mean, curve.unit)} on average, at most {quantity(curve.most, curve.unit)} in the run</dd>,
          ])}
        </dl>
      )}
    </div>
  );
}
