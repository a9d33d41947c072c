// Numbers in the same format as in the text report.

export function duration(nanos: number): string {
  const sign = nanos < 0 ? "-" : "";
  const value = Math.abs(nanos);
  if (value < 1e3) return `${sign}${Math.round(value)} ns`;
  if (value < 999_950) return `${sign}${(value / 1e3).toFixed(1)} us`;
  if (value < 999_950_000) return `${sign}${(value / 1e6).toFixed(1)} ms`;
  return `${sign}${(value / 1e9).toFixed(2)} s`;
}

/** From the start of tracing, from which all times count, to the begin of the timeline; nanoseconds. */
let zero = 0;

export function beginsAfter(nanos: number): void {
  zero = nanos;
}

/** A time of the run, to the microsecond. */
export function instant(nanos: number): string {
  return `${((nanos + zero) / 1e9).toFixed(6)} s`;
}

export function bytes(count: number): string {
  if (count < 1e3) return `${count} B`;
  if (count < 999_950) return `${(count / 1e3).toFixed(1)} kB`;
  if (count < 999_950_000) return `${(count / 1e6).toFixed(1)} MB`;
  return `${(count / 1e9).toFixed(2)} GB`;
}

/** A file without its folder, or within its package. */
export function shortFile(path: string): string {
  return path.replace(/^.*\/(site|dist)-packages\/|^.*\/(?=[^/]+$)/, "");
}

export function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

export function count(number: number): string {
  return Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, " ");
}

/** A value of a curve. */
export function quantity(value: number, unit: string): string {
  if (unit === "B" || unit === "B/s") return bytes(value) + unit.slice(1);
  if (unit === "Hz") return `${(value / 1e6).toFixed(0)} MHz`;
  if (unit === "%") return `${value.toFixed(value < 99.95 ? 1 : 0)} %`;
  return `${value.toFixed(value < 10 ? 1 : 0)} ${unit}`.trim();
}

/** A time on an axis with marks `step` apart: as many digits as distinguish two marks. */
export function moment(at: number, step: number): string {
  const digits = Math.min(9, Math.max(0, Math.ceil(9 - Math.log10(Math.max(step, 1)) - 1e-9)));
  return `${((at + zero) / 1e9).toFixed(digits)} s`;
}

/** The marks of an axis, about `most`, where `moment` has few digits: 1, 2 or 5 times a power of ten apart. */
export function marks(from: number, to: number, most: number, origin = 0): number[] {
  const least = (to - from) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) ?? 10 * power;
  const found: number[] = [];
  for (let at = Math.ceil((from + origin) / step) * step; at <= to + origin; at += step) found.push(at - origin);
  return found;
}
