// State of the view: a time window, a selection, a page of tables, a scenario. It is stored in the address, so that a
// link or a reload opens the same view; there is no other storage.

export interface View {
  from: number;
  to: number;
  /** Selected interval. */
  selected: [number, number] | null;
  /** Device shown in the panels. */
  device: number;
  tab: string;
  /** Index of the scenario in the timeline; 0 is the measured run. */
  variant: number;
  /** Name whose events are highlighted; 0: all are. */
  name: number;
  /** Cause that is highlighted; -1: all are. */
  leaf: number;
  /** Groups of rows that are folded although open by default, or the other way around; and hidden ones. */
  folded: string[];
  hidden: string[];
}

/** The shortest window, nanoseconds. */
export const SHORTEST = 100;

export function clamp(view: View, window: number): View {
  const length = Math.min(window, Math.max(SHORTEST, view.to - view.from));
  const from = Math.min(Math.max(0, view.from), window - length);
  return { ...view, from, to: from + length };
}

/** Zooms so that the time at `place` (0: left edge, 1: right edge) keeps its position. */
export function zoomed(view: View, factor: number, place: number, window: number): View {
  const at = view.from + (view.to - view.from) * place;
  const length = Math.min(window, Math.max(SHORTEST, (view.to - view.from) * factor));
  return clamp({ ...view, from: at - length * place, to: at + length * (1 - place) }, window);
}

export function panned(view: View, part: number, window: number): View {
  const by = (view.to - view.from) * part;
  return clamp({ ...view, from: view.from + by, to: view.to + by }, window);
}

/** Shows an interval with some space around it. */
export function around(view: View, from: number, to: number, window: number): View {
  const room = Math.max((to - from) * 0.5, SHORTEST / 2);
  return clamp({ ...view, from: from - room, to: to + room }, window);
}

const FIELDS = { g: "device", w: "variant", n: "name", l: "leaf" } as const;
const LISTS = { f: "folded", h: "hidden" } as const;

export function toFragment(view: View): string {
  const parts = [`v=${Math.round(view.from)}-${Math.round(view.to)}`, `t=${view.tab}`];
  if (view.selected) parts.push(`s=${Math.round(view.selected[0])}-${Math.round(view.selected[1])}`);
  for (const [letter, field] of Object.entries(FIELDS)) {
    if (view[field] !== START[field]) parts.push(`${letter}=${view[field]}`);
  }
  for (const [letter, field] of Object.entries(LISTS)) {
    if (view[field].length) parts.push(`${letter}=${view[field].join(".")}`);
  }
  return parts.join("&");
}

const START = { selected: null, device: 0, tab: "causes", variant: 0, name: 0, leaf: -1, folded: [], hidden: [] };

export function fromFragment(text: string, window: number): View {
  const view: View = { from: 0, to: window, ...START };
  for (const part of text.replace(/^#/, "").split("&")) {
    const [key, value = ""] = part.split("=");
    const range = value.match(/^(\d+)-(\d+)$/);
    if (key === "v" && range) [view.from, view.to] = [Number(range[1]), Number(range[2])];
    if (key === "s" && range) view.selected = [Number(range[1]), Number(range[2])];
    if (key === "t" && /^[a-z]+$/.test(value)) view.tab = value;
    const list = LISTS[key as keyof typeof LISTS];
    if (list && /^[a-z\d.]+$/.test(value)) view[list] = value.split(".");
    const field = FIELDS[key as keyof typeof FIELDS];
    if (field && /^-?\d+$/.test(value)) view[field] = Number(value);
  }
  return clamp(view, window);
}

/** Action of a key in the timeline; `null` if the key has none. */
export function key(view: View, pressed: string, window: number): View | null {
  switch (pressed) {
    case "w":
    case "ArrowUp":
    case "+":
      return zoomed(view, 0.6, 0.5, window);
    case "s":
    case "ArrowDown":
    case "-":
      return zoomed(view, 1 / 0.6, 0.5, window);
    case "a":
    case "ArrowLeft":
      return panned(view, -0.25, window);
    case "d":
    case "ArrowRight":
      return panned(view, 0.25, window);
    case "Home":
    case "f":
      return clamp({ ...view, from: 0, to: window }, window);
    case "Enter":
      return view.selected ? around(view, view.selected[0], view.selected[1], window) : null;
    case "Escape":
      return { ...view, selected: null, name: 0, leaf: -1 };
    default:
      return null;
  }
}
