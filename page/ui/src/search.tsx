// Search of names in the timeline: a list of the names that match, and the events of one of them in order of time.

import { useMemo, useRef, useState } from "preact/hooks";
import { firstFrom, type Lane, type Page } from "./data";
import { count, duration } from "./format";
import { ORIGIN } from "./modules";

/** Maximum number of names in the list. */
const MOST = 10;
const RANGE = 8;
/** What a kind of name is (see names.rs), and its place in the list. */
const KINDS: [string, number][] = [
  ["kernel", 0], ["kernel", 0], ["copy", 1], ["memset", 1], ["call", 3], ["call", 3], ["call", 3], ["call", 3], ["range", 4], ["module", 2],
];

/** A name with events. */
export interface Found {
  name: number;
  text: string;
  kind: string;
  /** Nanoseconds of all its events in the run, and their number; 0 if the report does not say. */
  total: number;
  events: number;
}

/** All names that events have, kernels first, then by their time. */
export function named(page: Page): Found[] {
  const { report } = page.manifest;
  const totals = new Map<string, [number, number]>();
  const add = (kind: number, text: string, nanos: number, events: number) => {
    const key = `${KINDS[kind]![0]} ${text}`;
    const [total, all] = totals.get(key) ?? [0, 0];
    totals.set(key, [total + nanos, all + events]);
  };
  for (const device of report.devices) {
    for (const kernel of device.kernels) add(0, kernel.name, kernel.total_ns, kernel.count);
  }
  for (const call of report.api) add(4, call.name, call.total_ns, call.calls);
  for (const range of report.ranges?.rows ?? []) add(RANGE, range.message, range.host?.total_ns ?? 0, range.host?.count ?? 0);
  for (const [name, operations, nanos] of page.manifest.graph_work ?? []) add(9, name, nanos, operations);
  // Names of what was waited for, and of source code, have no events.
  const without = new Set(page.names.subjects.filter(([kind]) => !["call", "kernel"].includes(kind)).map(([, name]) => name));
  const labels = new Set((page.names.origins ?? []).map((origin) => origin.label));
  const found: (Found & { place: number })[] = [];
  page.names.names.forEach(([text, kind], name) => {
    if (name === 0 || without.has(name) || (kind === 9 && !labels.has(name))) return;
    const [what, place] = KINDS[kind]!;
    const [total, events] = totals.get(`${what} ${text}`) ?? [0, 0];
    found.push({ name, text, kind: what, total, events, place });
  });
  return found.sort((a, b) => a.place - b.place || b.total - a.total || a.name - b.name);
}

/** The names that contain all words of a text, with `_` like a space; the one that is the text comes first. */
export function matching(all: Found[], text: string): Found[] {
  const plain = (text: string) => text.toLowerCase().replace(/_/g, " ");
  const wanted = text.trim();
  if (!wanted) return [];
  const words = wanted.split(/\s+/).map(plain);
  const found = all.filter((one) => {
    const known = plain(one.text);
    return words.every((word) => known.includes(word));
  });
  const same = found.findIndex((one) => one.text.toLowerCase() === wanted.toLowerCase());
  return same > 0 ? [found[same]!, ...found.slice(0, same), ...found.slice(same + 1)] : found;
}

/** Events of a name, in order of their start. */
export interface Occurrences {
  begin: Float64Array;
  end: Float64Array;
  lanes: Lane[];
}

export async function occurrences(page: Page, name: number): Promise<Occurrences> {
  const kind = page.kind(name);
  const of = kind < 4 || kind === 9 ? "stream" : kind === RANGE ? "ranges" : "thread";
  const found: [number, number, Lane][] = [];
  for (const lane of page.lanes(of)) {
    if (kind === 9 && !lane.nodes) continue;
    for (let index = 0; index < lane.chunks.length; index++) {
      const events = await page.chunk(lane, index);
      const [names, origins] = [events.values[0]!, events.values[ORIGIN]];
      for (let i = 0; i < events.count; i++) {
        if ((kind === 9 ? page.origin(origins![i]!)?.label : names[i]) !== name) continue;
        found.push([events.begin[i]!, events.begin[i]! + events.duration[i]!, lane]);
      }
    }
  }
  found.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  return {
    begin: Float64Array.from(found, ([begin]) => begin), end: Float64Array.from(found, ([, end]) => end),
    lanes: found.map(([, , lane]) => lane),
  };
}

/** Index of the event to go to: after `at` (its own index, if it is one of these) or before it; wraps around. */
export function following({ begin }: Occurrences, at: number, is: number | null, forward: boolean): number {
  const all = begin.length;
  if (is !== null) return (is + (forward ? 1 : all - 1)) % all;
  const next = firstFrom(begin, at);
  return forward ? next % all : (next + all - 1) % all;
}

/** The field with its list. `go` shows the next or the previous event of a name. */
export function Search(props: {
  page: Page;
  go: (name: number, forward: boolean) => void;
  nothing: (text: string) => void;
  leave: () => void;
  /** The text is another one. */
  changed: () => void;
  /** Where the shown event is among those of its name. */
  place: string;
}) {
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [chosen, choose] = useState(0);
  const all = useRef<Found[] | null>(null);
  const found = useMemo(() => (text.trim() ? matching((all.current ??= named(props.page)), text) : []), [text]);
  const shown = found.slice(0, MOST);
  const go = (index: number, forward: boolean) => {
    choose(index);
    setOpen(false);
    if (found[index]) props.go(found[index].name, forward);
    else if (text.trim()) props.nothing(text);
  };
  const pressed = (event: KeyboardEvent) => {
    const to = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (to && shown.length) {
      setOpen(true);
      choose((chosen + to + shown.length) % shown.length);
    } else if (event.key === "Enter") go(chosen, !event.shiftKey);
    else if (event.key === "Escape") {
      setOpen(false);
      props.leave();
      event.stopPropagation();
    } else return;
    event.preventDefault();
  };
  const list = open && text.trim() !== "";
  return (
    <div class="search">
      <label>
        search{" "}
        <input id="search" value={text} placeholder="kernel, call, range" role="combobox" autocomplete="off"
          aria-expanded={list} aria-controls="names" aria-autocomplete="list"
          aria-activedescendant={list && shown[chosen] ? `found-${chosen}` : undefined}
          onInput={(event) => {
            setText(event.currentTarget.value);
            props.changed();
            setOpen(true);
            choose(0);
          }}
          onKeyDown={pressed} onBlur={() => setOpen(false)} />
      </label>
      <span class="place" role="status">{props.place}</span>
      <div id="found" class="found" hidden={!list}>
        <div role="listbox" id="names" aria-label="Names">
          {list && shown.map((one, index) => (
            <div role="option" id={`found-${index}`} aria-selected={index === chosen} title={one.text}
              onPointerDown={(event) => {
                event.preventDefault();
                go(index, true);
              }}>
              <small>{one.kind}</small> <span>{one.text}</span>{" "}
              <small class="n">{one.total > 0 ? `${count(one.events)} in ${duration(one.total)}` : ""}</small>
            </div>
          ))}
        </div>
        {list && <p>{found.length === 0 ? "no name contains this" : `${shown.length} of ${count(found.length)} names`}</p>}
      </div>
    </div>
  );
}
