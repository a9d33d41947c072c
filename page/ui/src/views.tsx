// The pages of tables: the report's contents, as far as the trace has them.

import type { ComponentChildren } from "preact";
import { subjectWords } from "./answer";
import type { Excerpt, Page, Report } from "./data";
import { FlameView, GraphFlame } from "./flame";
import { bytes, count, duration, instant, percent } from "./format";
import { hasLimits, Limits } from "./limits";
import { ReplayView } from "./replay";
import { Mark } from "./selection";
import { Table, type Column } from "./table";
import type { View } from "./view";

export interface ViewProps {
  page: Page;
  view: View;
  show: (view: View) => void;
  /** Shows the next event of a name. */
  find: (name: string) => void;
}

interface Tab {
  id: string;
  title: string;
  /** True if the trace has the data. */
  has: (report: Report, page: Page) => boolean;
  body: (props: ViewProps) => ComponentChildren;
}

/* eslint-disable @typescript-eslint/no-explicit-any */
type Row = any;

const nanos = (title: string, field: string): Column<Row> => ({
  title, value: (row) => row[field] ?? 0, text: (row) => duration(row[field] ?? 0),
});
const number = (title: string, field: string): Column<Row> => ({
  title, value: (row) => row[field] ?? 0, text: (row) => count(row[field] ?? 0),
});
const text = (title: string, of: (row: Row) => string): Column<Row> => ({ title, value: of });

function deviceOf({ page, view }: ViewProps): Row {
  const { devices } = page.manifest.report;
  return devices.find((device: Row) => device.id === view.device) ?? devices[0];
}

function Causes(props: ViewProps) {
  const { page, view, show } = props;
  const device = deviceOf(props);
  if (!device) return <p>No GPU work was recorded.</p>;
  const rows = page.manifest.leaves
    .map((leaf, index) => ({ ...leaf, index, ns: device.leaves[leaf.name] as number, steady: device.steady_leaves[leaf.name] as number }))
    .filter((row) => row.ns > 0)
    .sort((a, b) => b.ns - a.ns);
  const columns: Column<(typeof rows)[0]>[] = [
    { title: "Group", value: (row) => page.manifest.causes[row.cause]!.words,
      text: (row) => <span><Mark page={page} cause={row.cause} /> {page.manifest.causes[row.cause]!.words}</span> },
    { title: "Cause", value: (row) => row.words },
    { title: "Time", value: (row) => row.ns, text: (row) => duration(row.ns) },
    { title: "Share", value: (row) => row.ns / device.window_ns, text: (row) => percent(row.ns / device.window_ns) },
    { title: "After start-up", value: (row) => row.steady, text: (row) => duration(row.steady) },
  ];
  const gaps: Row[] = device.gaps;
  return (
    <div>
      <Table label="Time by cause" rows={rows} columns={columns} action="highlight" pressed={(row) => view.leaf === row.index}
        pick={(row) => show({ ...view, leaf: view.leaf === row.index ? -1 : row.index })} />
      <h2>Idle time after start-up, by operation waited for</h2>
      <Table label="Idle time by operation waited for" rows={gaps} columns={[
        text("Cause", (row) => page.manifest.leaves.find((leaf) => leaf.name === row.leaf)?.words ?? row.leaf),
        text("Waits for", (row) => subjectWords(page, row.kind, row.name ?? "") || "various calls"),
        number("Gaps", "count"), nanos("Time", "total_ns"), nanos("Longest", "longest_ns"),
      ]} />
    </div>
  );
}

/** A kind of steps. */
interface Kind {
  name: string;
  count: number;
  median_ns: number;
}

/** How steps were found, in the words of the text report. */
const FOUND: Record<string, string> = {
  annotated: "named by the program", anchor: "detected by an operation that runs once in each", period: "detected",
  iteration: "iterations of a server",
};

function Steps(props: ViewProps) {
  const { page, view, show } = props;
  const device = deviceOf(props);
  const of = page.manifest.timeline?.steps.find((steps) => steps.device === device?.id);
  if (!device?.steps || !of) return <p>No steps were found.</p>;
  let at = 0;
  const rows = of.rows.map(([gap, lasted], index) => {
    const from = at + gap;
    at = from + lasted;
    return { number: index + 1, from, duration: lasted, kind: of.kinds[index] ?? "" };
  });
  const median: number = device.steps.median_ns;
  const kinds: Kind[] = device.step_kinds;
  const times: Column<(typeof rows)[0]> = {
    title: "Times the median", value: (row) => row.duration / median, text: (row) => (row.duration / median).toFixed(2),
  };
  return (
    <div>
      <p>
        {count(device.steps.seen)} steps, {kinds.length
          ? kinds.map((kind) => `${count(kind.count)} ${kind.name} with a median of ${duration(kind.median_ns)}`).join(", ")
          : `median ${duration(median)}`}, {FOUND[device.steps.source]}.
      </p>
      <Table label="Steps" rows={rows} action="zoom"
        pick={(row) => show({ ...view, from: row.from, to: row.from + row.duration, selected: [row.from, row.from + row.duration] })}
        columns={[
          { title: "Step", value: (row) => row.number },
          { title: "Begin", value: (row) => row.from, text: (row) => instant(row.from) },
          { title: "Duration", value: (row) => row.duration, text: (row) => duration(row.duration) },
          ...(of.kinds.length ? [{ title: "Kind", value: (row: (typeof rows)[0]) => row.kind }] : []),
          ...(kinds.length ? [] : [times]),
        ]} />
    </div>
  );
}

function Kernels(props: ViewProps) {
  const device = deviceOf(props);
  const total = device.kernels.reduce((sum: number, row: Row) => sum + row.steady_ns, 0) || 1;
  return (
    <Table label="Kernels" rows={device.kernels as Row[]} pick={(row) => props.find(row.name)} columns={[
      text("Kernel", (row) => row.name), text("Library", (row) => row.library ?? ""),
      nanos("After start-up", "steady_ns"),
      { title: "Share", value: (row: Row) => row.steady_ns / total, text: (row: Row) => percent(row.steady_ns / total) },
      number("Count", "count"), nanos("Whole run", "total_ns"),
      nanos("Median", "median_ns"), nanos("Shortest", "min_ns"), nanos("Longest", "max_ns"),
      { title: "Max occupancy", value: (row: Row) => row.geometry?.theoretical_occupancy ?? 0,
        text: (row: Row) => (row.geometry ? `${Math.round(row.geometry.theoretical_occupancy * 100)} %` : "") },
      text("Limited by", (row) => row.geometry?.limiter ?? ""),
    ]} />
  );
}

function Graphs({ page, find }: ViewProps) {
  const rows = page.manifest.graph_work!;
  const total = rows.reduce((sum, [, , time]) => sum + time, 0) || 1;
  return (
    <div>
      <h2>Work of CUDA graphs by module</h2>
      <Table label="Work of CUDA graphs by module" rows={rows} pick={([name]) => find(name)} columns={[
        { title: "Captured in", value: ([name]) => name },
        { title: "Operations", value: ([, operations]) => operations, text: ([, operations]) => count(operations) },
        { title: "Time", value: ([, , time]) => time, text: ([, , time]) => duration(time) },
        { title: "Share", value: ([, , time]) => time / total, text: ([, , time]) => percent(time / total) },
      ]} />
      <GraphFlame page={page} />
    </div>
  );
}

function Copies(props: ViewProps) {
  return (
    <Table label="Copies" rows={deviceOf(props).copies as Row[]} columns={[
      text("Direction", (row) => row.direction.replace(/_/g, " ")),
      text("From", (row) => row.source), text("To", (row) => row.destination), number("Count", "count"),
      { title: "Bytes", value: (row: Row) => row.bytes, text: (row: Row) => bytes(row.bytes) },
      nanos("Time", "total_ns"), nanos("Median", "median_ns"),
      { title: "GB/s", value: (row: Row) => row.gigabytes_per_second, text: (row: Row) => row.gigabytes_per_second.toFixed(2) },
      text("Limited by", (row) => row.class),
    ]} />
  );
}

function Calls({ page, find }: ViewProps) {
  return (
    <Table label="CUDA calls" rows={page.manifest.report.api as Row[]} pick={(row) => find(row.name)} columns={[
      text("Function", (row) => row.name), number("Calls", "calls"), number("Failed", "failed"),
      nanos("Time", "total_ns"), nanos("Longest", "max_ns"),
    ]} />
  );
}

function Ranges({ page, find }: ViewProps) {
  const rows: Row[] = page.manifest.report.ranges?.rows ?? [];
  const field = (row: Row, of: string, name: string) => row[of]?.[name] ?? 0;
  return (
    <Table label="Ranges" rows={rows} pick={(row) => find(row.message)} columns={[
      text("Range", (row) => (row.domain ? `${row.domain}: ` : "") + row.message),
      { title: "Times", value: (row: Row) => field(row, "host", "count"), text: (row: Row) => count(field(row, "host", "count")) },
      { title: "On the host", value: (row: Row) => field(row, "host", "total_ns"), text: (row: Row) => duration(field(row, "host", "total_ns")) },
      { title: "Projected", value: (row: Row) => field(row, "projected", "total_ns"), text: (row: Row) => duration(field(row, "projected", "total_ns")) },
      number("Operations", "operations"), nanos("GPU time", "device_ns"),
    ]} />
  );
}

function Host({ page, view }: ViewProps) {
  const { report: { host, kernel_lines: launches }, lines, call_lines: callLines, launch_lines: launchLines } = page.manifest;
  const words = (row: Row) => lines[host.lines.indexOf(row)]!;
  return (
    <div>
      <FlameView page={page} device={view.device} />
      {host && <h2>Lines during which the GPU was idle, after start-up</h2>}
      {host && (
        <Table label="Lines" rows={host.lines as Row[]} columns={[
          { title: "Line", value: (row: Row) => words(row)[0], whole: true },
          text("Doing", (row) => words(row)[1]), nanos("Idle time", "total_ns"),
          { title: "Share", value: (row: Row) => row.share, text: (row: Row) => percent(row.share) },
        ]} />
      )}
      {host?.calls.length > 0 && <h2>Lines of CUDA calls, after start-up</h2>}
      {host?.calls.length > 0 && (
        <Table label="Lines of CUDA calls" rows={host.calls as Row[]} columns={[
          text("Calls", (row) => row.calls),
          { title: "Line", value: (row: Row) => callLines[host.calls.indexOf(row)]!, whole: true },
          { title: "Share of such calls", value: (row: Row) => row.share,
            text: (row: Row) => `${percent(row.share)} (${percent(row.share_low)} to ${percent(row.share_high)})` },
          number("Samples", "samples"),
        ]} />
      )}
      {launches?.lines.length > 0 && <h2>Kernel time by launching line, an estimate from samples</h2>}
      {launches?.lines.length > 0 && (
        <Table label="Kernel time by line" rows={launches.lines as Row[]} columns={[
          { title: "Line", value: (row: Row) => launchLines[launches.lines.indexOf(row)]!, whole: true },
          nanos("Time", "total_ns"),
          { title: "Share", value: (row: Row) => row.share,
            text: (row: Row) => `${percent(row.share)} (${[row.low_ns, row.high_ns].map((end) => percent(end / launches.kernel_ns)).join(" to ")})` },
          number("Samples", "samples"), text("Largest kernel", (row) => row.largest_kernel),
        ]} />
      )}
      {launches?.left_out && <h2>Kernel time by launching line</h2>}
      {launches?.left_out && <p>{launches.left_out}</p>}
      {!host && <p>No samples of the launching threads were taken.</p>}
      {page.manifest.sources.length > 0 && <h2>Source code</h2>}
      {page.manifest.sources.map((excerpt) => <Source of={excerpt} />)}
    </div>
  );
}

/** A source line with its surrounding lines. */
function Source({ of }: { of: Excerpt }) {
  return (
    <div class="source">
      <h3 class="name">{of.file}:{of.line}</h3>
      <pre tabIndex={0}>
        {of.text.map((text, index) => {
          const number = of.first + index;
          const row = `${String(number).padStart(6)}  ${text}\n`;
          return number === of.line ? <mark>{row}</mark> : row;
        })}
      </pre>
    </div>
  );
}

function WhatIf(props: ViewProps) {
  const device = deviceOf(props);
  const of = device?.what_if;
  if (!of) return <p>No replay was made.</p>;
  const gains = props.page.manifest.gains.filter((gain) => gain.device === device.id);
  return (
    <div>
      <ReplayView page={props.page} view={props.view} show={props.show} />
      <p>
        {of.simulated
          ? `Simulated from ${count(of.steps)} steps; the simulation of the unmodified run is ${percent(Math.abs(of.base_error ?? 0))} off.`
          : "Rough bounds, because the steps cannot be simulated."}
      </p>
      {gains.length > 0 ? (
        <Table label="Best cases" rows={gains} columns={[
          { title: "If", value: (gain) => gain.condition, whole: true },
          { title: "A step then takes", value: (gain) => gain.step_ns, text: (gain) => duration(gain.step_ns) },
          { title: "Best case", value: (gain) => gain.words, whole: true },
        ]} />
      ) : <p>No cost is worth more than 1 %.</p>}
    </div>
  );
}

function Memory({ page }: ViewProps) {
  const rows: Row[] = page.manifest.report.memory?.places ?? [];
  const size = (title: string, field: string): Column<Row> => ({
    title, value: (row) => row[field] ?? 0, text: (row) => bytes(row[field] ?? 0),
  });
  return (
    <Table label="Memory" rows={rows} columns={[
      text("GPU", (row) => String(row.device ?? "")), text("Kind", (row) => row.kind),
      size("Peak", "peak_bytes"), size("Held at the end", "current_bytes"), size("Largest", "largest_bytes"),
      number("Allocations", "allocations"),
      text("Peak by", (row) => row.peak_by?.function ?? ""),
    ]} />
  );
}

function About({ page }: ViewProps) {
  const { report, missing, left_out: leftOut, source, timeline } = page.manifest;
  const facts: [string, string][] = [
    ["trace", source.file], ["process", `${report.process.pid} on ${report.process.host}`],
    ["command", report.process.command.join(" ")], ["gpuwhy", report.process.gpuwhy_version],
    ["driver", report.process.driver_version], ["CUPTI", String(report.process.cupti_version)],
    ["GPUs", report.process.devices.join(", ")],
    ["events in this page", count(timeline?.lanes.reduce((sum, lane) => sum + lane.embedded, 0) ?? 0)],
    ["make this page again", `gpuwhy report --html OUT ${source.file}`],
    ["open in Perfetto", `gpuwhy export --to perfetto ${source.file}`],
  ];
  const losses = Object.entries(timeline?.lost ?? {}).filter(([, lost]) => lost > 0);
  const notes = [...missing, ...report.completeness.damage, ...leftOut, ...report.process.notes];
  return (
    <div>
      <dl>{facts.map(([name, value]) => [<dt>{name}</dt>, <dd class="name">{value}</dd>])}</dl>
      <h2>Completeness</h2>
      <ul>{notes.map((note: string) => <li>{note}</li>)}{notes.length === 0 && <li>Nothing is missing.</li>}</ul>
      {losses.length > 0 && (
        <Table label="Not in the timeline" rows={losses} columns={[
          { title: "Not in the timeline", value: ([name]) => name.replace(/_/g, " ") },
          { title: "Count", value: ([, lost]) => lost, text: ([, lost]) => count(lost) },
        ]} />
      )}
    </div>
  );
}

const hasDevice = (report: Report) => report.devices.length > 0;

export const TABS: Tab[] = [
  { id: "causes", title: "Causes", has: hasDevice, body: (props) => <Causes {...props} /> },
  { id: "steps", title: "Steps", has: (report) => report.devices.some((device: Row) => device.steps), body: (props) => <Steps {...props} /> },
  { id: "host", title: "Host", has: (report) => Boolean(report.host), body: (props) => <Host {...props} /> },
  { id: "kernels", title: "Kernels", has: hasDevice, body: (props) => <Kernels {...props} /> },
  { id: "graphs", title: "CUDA graphs", has: (_, page) => Boolean(page.manifest.graph_work), body: (props) => <Graphs {...props} /> },
  { id: "limits", title: "Inside the GPU", has: hasLimits, body: (props) => <Limits {...props} /> },
  { id: "copies", title: "Copies", has: (report) => report.devices.some((device: Row) => device.copies.length), body: (props) => <Copies {...props} /> },
  { id: "calls", title: "Calls", has: (report) => report.api.length > 0, body: (props) => <Calls {...props} /> },
  { id: "ranges", title: "Ranges", has: (report) => Boolean(report.ranges), body: (props) => <Ranges {...props} /> },
  { id: "whatif", title: "What-if", has: (report) => report.devices.some((device: Row) => device.what_if), body: (props) => <WhatIf {...props} /> },
  { id: "memory", title: "Memory", has: (report) => Boolean(report.memory), body: (props) => <Memory {...props} /> },
  { id: "about", title: "About", has: () => true, body: (props) => <About {...props} /> },
];
