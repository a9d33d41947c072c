// Limits of computation inside the GPU, from hardware counters if sampled.

import type { CounterLane, Report } from "./data";
import { bytes, count, duration, percent } from "./format";
import { Table } from "./table";
import type { ViewProps } from "./views";

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Row = any;

/** A limit or a roofline in the words of the text report. */
export function wordsOf(list: [string, string][], name: string | null | undefined): string {
  return list.find(([known]) => known === name)?.[1] ?? "";
}

/** The largest parts of a kernel's time, in words. */
export function largest(parts: Record<string, number>, list: [string, string][]): string {
  const rows = Object.entries(parts).filter(([, part]) => part >= 0.05).sort((a, b) => b[1] - a[1]);
  return rows.slice(0, 3).map(([name, part]) => `${wordsOf(list, name)} ${Math.round(part * 100)} %`).join(", ");
}

export const hasLimits = (report: Report): boolean =>
  report.devices.some((device: Row) => device.compute_limits || device.gauges);

export function Limits({ page, view, find }: ViewProps) {
  const { report, limits, roofs, timeline } = page.manifest;
  const device: Row = report.devices.find((row: Row) => row.id === view.device) ?? report.devices[0];
  const of: Row = device.compute_limits;
  const kernels: Row[] = device.kernels.filter((row: Row) => row.limits);
  const lane = timeline?.counters.find((lane) => lane.device === device.id);
  return (
    <div>
      {of && <Division of={of} limits={limits} />}
      {lane && <Counters lane={lane} span={timeline!.window_ns} />}
      {kernels.length > 0 && <h2>Kernels by what limits them</h2>}
      {kernels.length > 0 && (
        <Table label="Kernels by what limits them" rows={kernels} pick={(row) => find(row.name)} columns={[
          { title: "Kernel", value: (row) => row.name },
          { title: "Time", value: (row) => row.total_ns, text: (row) => duration(row.total_ns) },
          { title: "Nearest roof", value: (row) => wordsOf(roofs, row.limits.roof) || "cannot tell" },
          { title: "Used", value: (row) => row.limits.used ?? 0, text: (row) => used(row.limits) },
          { title: "Its time by limit", value: (row) => largest(row.limits.parts, limits) },
          { title: "Step at 90 % of the roof", value: (row) => row.limits.step_speedup_at_90 ?? 0,
            text: (row) => (row.limits.step_speedup_at_90 ? `${row.limits.step_speedup_at_90.toFixed(2)}x` : "") },
        ]} />
      )}
      {kernels.some((row) => !row.limits.own) && (
        <p>Kernels marked "pooled" are too short to be reported apart; they share one estimate.</p>
      )}
      {device.gauges && <Gauges of={device.gauges} />}
    </div>
  );
}

function used({ used: part, standard_error: error, own }: Row): string {
  if (part === null) return "";
  return `${Math.round(part * 100)} %` + (own ? ` (±${Math.max(1, Math.round((error ?? 0) * 100))})` : " (pooled)");
}

/** Mean time covered by a sample, nanoseconds, as in the text report. */
const interval = ({ samples, interval_ns }: Row): number =>
  samples.used > 0 && samples.used_ns > 0 ? samples.used_ns / samples.used : interval_ns;

function Division({ of, limits }: { of: Row; limits: [string, string][] }) {
  const times: Record<string, number> = of.step_ns ?? of.steady_ns;
  const rows = limits.map(([name, words]) => ({ words, nanos: times[name] ?? 0 })).filter((row) => row.nanos > 0);
  const total = rows.reduce((sum, row) => sum + row.nanos, 0);
  rows.sort((a, b) => b.nanos - a.nanos);
  const step = of.step_ns ? "of a typical step" : "after start-up";
  return (
    <div>
      <h2>What limits the computation {step}</h2>
      <table class="limits" id="limits">
        <tbody>
          {rows.map((row) => (
            <tr>
              <td>{row.words}</td>
              <td class="n" title={`${row.nanos} ns`}>{duration(row.nanos)}</td>
              <td class="n">{percent(row.nanos / total)}</td>
              <td class="wide"><div class="part" style={{ width: `${(row.nanos / total) * 100}%` }} /></td>
            </tr>
          ))}
        </tbody>
        <tfoot><tr><th>computation</th><td class="n" title={`${total} ns`}>{duration(total)}</td><td /><td /></tr></tfoot>
      </table>
      <p>
        {count(of.samples.used)} samples, every {duration(interval(of))} on average.
        {of.kernel_clock_hz && of.highest_clock_hz
          ? ` Clock while kernels ran, from cycle counts: ${(of.kernel_clock_hz / 1e9).toFixed(2)} of ${(of.highest_clock_hz / 1e9).toFixed(2)} GHz.` : ""}
        {of.tensor_of_peak !== null ? ` Tensor cores: ${percent(of.tensor_of_peak)} of their peak in typical steps.` : ""}
        {of.step_bytes_read !== null
          ? ` A step reads ${bytes(of.step_bytes_read)} of device memory and writes ${bytes(of.step_bytes_written)}.` : ""}
      </p>
    </div>
  );
}

const HIGH = 44;

/** Counters in percent of their peak over the run, one row each. */
function Counters({ lane, span }: { lane: CounterLane; span: number }) {
  return (
    <div>
      <h2>Counters over the run, percent of the peak</h2>
      <table class="limits">
        <tbody>
          {lane.rows.map((row) => {
            const known = row.values.filter((value): value is number => value !== null);
            const mean = known.reduce((sum, value) => sum + value, 0) / Math.max(1, known.length);
            return (
              <tr>
                <td>{row.name.replace(/_/g, " ")}</td>
                <td class="n">{Math.round(mean)} %</td>
                <td>
                  <svg class="counter" viewBox={`0 0 ${row.values.length} ${HIGH}`} preserveAspectRatio="none" role="img"
                    aria-label={`${row.name} over ${duration(span)}: ${Math.round(mean)} percent on average`}>
                    {row.values.map((value, x) => value !== null && value > 0
                      ? <rect x={x} y={HIGH * (1 - Math.min(100, value) / 100)} width="1" height={(HIGH * Math.min(100, value)) / 100} />
                      : null)}
                  </svg>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Gauges({ of }: { of: Row }) {
  const rows: [string, Row, (value: number) => string][] = [
    // The energy counter yields a more accurate mean than power readings, which the timeline shows.
    [of.watts ? "power (mean by the energy counter)" : "power", of.power_w && { ...of.power_w, mean: of.watts ?? of.power_w.mean }, (value) => `${value.toFixed(0)} W`],
    ["temperature", of.temperature_c, (value) => `${value.toFixed(0)} °C`],
    ["SM clock, as read", of.sm_clock_mhz, (value) => `${value.toFixed(0)} MHz`],
    ["memory clock", of.memory_clock_mhz, (value) => `${value.toFixed(0)} MHz`],
    ["memory used", of.memory_used_bytes, bytes],
  ];
  const throttled = Object.entries(of.lowered_by_ns as Record<string, number>).filter(([, nanos]) => nanos > 0);
  return (
    <div>
      <h2>Gauges</h2>
      <table class="limits">
        <thead><tr><th /><th class="n">Mean</th><th class="n">Least</th><th class="n">Most</th></tr></thead>
        <tbody>
          {rows.filter(([, range]) => range).map(([name, range, text]) => (
            <tr><td>{name}</td><td class="n">{text(range.mean)}</td><td class="n">{text(range.min)}</td><td class="n">{text(range.max)}</td></tr>
          ))}
        </tbody>
      </table>
      <p>
        {of.step_joules ? `A step takes ${of.step_joules.toFixed(2)} J. ` : ""}
        {of.lowered_over_ns > 0
          ? `The clock was lowered ${percent(of.lowered_ns / of.lowered_over_ns)} of the time` +
            (throttled.length ? `: ${throttled.map(([name, nanos]) => `${name.replace(/_/g, " ")} ${duration(nanos)}`).join(", ")}.` : ".")
          : ""}
      </p>
    </div>
  );
}
