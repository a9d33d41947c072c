// A table that sorts and filters, and draws only the visible rows.

import { useMemo, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";

export interface Column<T> {
  title: string;
  /** Sort key. */
  value: (row: T) => number | string;
  text?: (row: T) => ComponentChildren;
  /** True for texts that only their end may tell apart, which are not cut. */
  whole?: boolean;
}

const ROW = 24;
const VISIBLE = 24;

export function Table<T>(props: {
  rows: T[];
  columns: Column<T>[];
  label: string;
  pick?: (row: T) => void;
  action?: string;
  /** True for the row that the action applies to now. */
  pressed?: (row: T) => boolean;
}) {
  const { rows, columns, label, pick } = props;
  const [sorted, setSorted] = useState<[number, boolean] | null>(null);
  const [filter, setFilter] = useState("");
  const [top, setTop] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const shown = useMemo(() => {
    const wanted = filter.toLowerCase();
    const found = wanted
      ? rows.filter((row) => columns.some(({ value }) => String(value(row)).toLowerCase().includes(wanted)))
      : [...rows];
    if (sorted) {
      const [column, down] = sorted;
      const { value } = columns[column]!;
      const order = (a: T, b: T) => {
        const [x, y] = [value(a), value(b)];
        return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      };
      found.sort((a, b) => (down ? -order(a, b) : order(a, b)));
    }
    return found;
  }, [rows, sorted, filter]);
  const first = Math.max(0, Math.floor(top / ROW) - 4);
  const last = Math.min(shown.length, first + VISIBLE + 8);
  const numeric = (column: Column<T>) => rows.length > 0 && typeof column.value(rows[0]!) === "number";
  return (
    <div class="table">
      <p>
        <label>
          filter <input value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
        </label>{" "}
        <small>{shown.length} of {rows.length} rows</small>
      </p>
      <div class="scroll" ref={box} tabIndex={0} role="region" aria-label={label}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
        <table>
          <thead>
            <tr>
              {columns.map((column, index) => (
                <th class={numeric(column) ? "n" : ""}
                  aria-sort={sorted?.[0] === index ? (sorted[1] ? "descending" : "ascending") : "none"}>
                  <button onClick={() => setSorted([index, sorted?.[0] === index ? !sorted[1] : numeric(column)])}>
                    {column.title}{sorted?.[0] === index ? (sorted[1] ? " ▾" : " ▴") : ""}
                  </button>
                </th>
              ))}
              {pick && <th><span class="hidden">action</span></th>}
            </tr>
          </thead>
          <tbody>
            {first > 0 && <tr style={{ height: `${first * ROW}px` }}><td /></tr>}
            {shown.slice(first, last).map((row) => (
              <tr style={{ height: `${ROW}px` }}>
                {columns.map((column) => {
                  const text = column.text ? column.text(row) : column.value(row);
                  return (
                    <td class={numeric(column) ? "n" : column.whole ? "" : "cut"} title={typeof text === "string" ? text : undefined}>
                      {text}
                    </td>
                  );
                })}
                {pick && <td><button aria-pressed={props.pressed?.(row)} onClick={() => pick(row)}>{props.action ?? "show"}</button></td>}
              </tr>
            ))}
            {last < shown.length && <tr style={{ height: `${(shown.length - last) * ROW}px` }}><td /></tr>}
          </tbody>
        </table>
      </div>
    </div>
  );
}
