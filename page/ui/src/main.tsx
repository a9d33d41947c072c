// The page: reads the embedded data, and draws it next to the static report. Without scripts only the static report is
// shown, and it is restored if anything here fails.

import { render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { AnswerPanel } from "./answer";
import { Page, type Curve, type Lane } from "./data";
import { Dock } from "./dock";
import { link, longest, type Topic } from "./evidence";
import { beginsAfter, count, moment } from "./format";
import { layout, type Group, type Row } from "./rows";
import { following, occurrences, Search, type Occurrences } from "./search";
import { eventIn, gapAt, Mark, Interval, type Answer } from "./selection";
import { neighbor, type Sums } from "./sums";
import { readCurves, readSums, TimelineView, type Hit } from "./timeline";
import { TABS } from "./views";
import { around, clamp, fromFragment, toFragment, type View } from "./view";

/** Kind of the names of launching calls (see names.rs). */
const LAUNCH = 4;

const KEYS: [string, string][] = [
  ["W S, arrows up and down, wheel", "zoom"], ["A D, arrows, shift and wheel", "move"], ["F", "the whole run"],
  ["drag", "select an interval: its exact breakdown"], ["click", "ask about a gap, kernel or call"],
  ["[ ]", "the gap of the same cause before and behind"], ["Enter", "zoom to the selection"],
  ["/", "search a name"], ["Enter, shift and Enter in the search", "the next and the previous event of the name"],
  ["Esc", "clear, or leave the search"], ["?", "these keys"],
];

function App({ page, sums, curves }: { page: Page; sums: Map<Lane, Sums>; curves: Curve[] }) {
  const timeline = page.manifest.timeline!;
  const total = timeline.window_ns;
  const [view, setView] = useState<View>(() => onDevice(page, fromFragment(location.hash, total)));
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [asked, ask] = useState(NaN);
  const [said, say] = useState("");
  const [help, setHelp] = useState(false);
  const searched = useRef<{ name: number; all: Promise<Occurrences>; at: number | null } | null>(null);
  const [place, setPlace] = useState("");
  const latest = useRef(view);
  const show = (next: View) => {
    latest.current = onDevice(page, clamp(next, total));
    setView(latest.current);
    say("");
  };

  useEffect(() => {
    try {
      history.replaceState(null, "", "#" + toFragment(view));
    } catch {
      // A sandbox may refuse it; the page works without it.
    }
  }, [view]);
  useEffect(() => {
    const changed = () => {
      const { hash } = location;
      const next = fromFragment(hash, total);
      // A link of this page: one without a tab is to a place in the timeline.
      if (hash === "#completeness") show({ ...latest.current, tab: "about" });
      else if (/[#&]t=/.test(hash)) show(next);
      else if (next.selected) void visit(next.selected);
      if (hash === "#completeness") document.querySelector(".tabs")?.scrollIntoView();
    };
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);

  const zoom = (from: number, to: number) => {
    show(around({ ...latest.current, selected: [from, to] }, from, to, total));
    reveal();
  };
  /** Goes to an interval, and says what is in its middle. */
  const visit = async ([from, to]: [number, number]) => {
    zoom(from, to);
    setAnswer(await gapAt(page, latest.current.device, (from + to) / 2));
  };
  const pick = async (hit: Hit, y: number) => {
    const { row, at, slack } = hit;
    ask(y);
    say("");
    if (row.kind === "steps") {
      const of = timeline.steps.find((steps) => steps.device === row.device);
      let position = 0;
      setAnswer(null);
      for (const [gap, lasted] of of?.rows ?? []) {
        const from = position + gap;
        position = from + lasted;
        if (from <= at && at < position) show({ ...view, selected: [from, position], device: row.device ?? 0 });
      }
      return;
    }
    if (row.kind === "device") {
      // What is narrower than a pixel is one of many there.
      const seen = ({ from, to }: { from: number; to: number }) => to - from >= slack;
      const gap = await gapAt(page, row.device!, at);
      if (gap && seen(gap)) {
        setAnswer(gap);
        show({ ...latest.current, selected: [gap.from, gap.to], device: row.device! });
        return;
      }
      const work = page.lanes("stream").filter((lane) => lane.device === row.device);
      for (const lane of work) {
        const found = await eventIn(page, { ...hit, row: { ...row, lane } });
        if (found && seen(found)) {
          setAnswer(found);
          return;
        }
      }
      setAnswer(null);
      const column: [number, number] = [Math.max(0, Math.floor(at - slack / 2)), Math.min(total, Math.ceil(at + slack / 2))];
      show({ ...latest.current, selected: column, device: row.device! });
      if (!page.whole(row.lane!, at, at + 1)) say("Events of this interval are not in this file; About has the command.");
      return;
    }
    setAnswer(await eventIn(page, hit));
  };
  const next = async (leaf: number, forward: boolean) => {
    const lane = page.lane("device", view.device, view.device);
    const at = answer ? answer.from : (view.from + view.to) / 2;
    const from = forward && answer ? answer.to : at;
    // The first one follows the last one.
    const found =
      lane &&
      ((await neighbor(page, lane, from, leaf, forward)) ??
        (await neighbor(page, lane, forward ? -1 : total + 1, leaf, forward)));
    if (!found) {
      say("There is no other in this file.");
      return;
    }
    const gap = await gapAt(page, view.device, found.begin);
    if (gap) setAnswer(gap);
    zoom(gap?.from ?? found.begin, gap?.to ?? found.begin + found.duration);
  };
  const go = async (name: number, forward: boolean) => {
    if (searched.current?.name !== name) {
      setPlace("searching");
      searched.current = { name, all: occurrences(page, name), at: null };
    }
    const of = searched.current;
    const { begin, end, lanes } = await of.all;
    if (searched.current !== of) return;
    if (!begin.length) {
      setPlace("");
      say(`No event of ${page.name(name).slice(0, 80)} is in this file.`);
      return;
    }
    of.at = following({ begin, end, lanes }, latest.current.from, of.at, forward);
    const [from, to, lane] = [begin[of.at]!, end[of.at]!, lanes[of.at]!];
    setPlace(`${count(of.at + 1)} of ${count(begin.length)}${timeline.windows ? " in this page" : ""}`);
    show(around({ ...latest.current, name, selected: [from, to], device: lane.device ?? latest.current.device }, from, to, total));
    say(page.name(name).slice(0, 120));
    reveal();
    const row: Row = { kind: lane.kind, label: lane.label, lane, device: lane.device, top: 0, height: 0 };
    ask(NaN);
    setAnswer(await eventIn(page, { row, at: (from + to) / 2, slack: 0 }));
  };
  /** Forgets where the search was: its text is another one. */
  const restart = () => {
    searched.current = null;
    setPlace("");
    say("");
  };
  const find = (text: string) => {
    const name = page.names.names.findIndex(([known], index) => index > 0 && known === text);
    if (name > 0) void go(name, true);
    else say(`No event of ${text.slice(0, 80)} is in this file.`);
  };
  const lead = async (topic: Topic) => {
    if ("kernel" in topic) return find(topic.kernel);
    const found = await longest(page, topic);
    if (!found) return say("No single wait of this kind is in this file.");
    const [of, from, to] = found;
    show({ ...latest.current, device: of.device! });
    await visit([from, to]);
  };
  useEffect(() => link(page, (topic) => void lead(topic)), []);
  /** Shows what the timeline asks for; an answer belongs to its selection. */
  const select = (next: View) => {
    if (next.selected !== latest.current.selected) setAnswer(null);
    show(next);
  };
  const fold = ({ id }: Group) => show({ ...latest.current, folded: changed(latest.current.folded, id) });
  const hide = ({ id }: Group) => show({ ...latest.current, hidden: changed(latest.current.hidden, id) });
  const leave = () => document.querySelector<HTMLElement>("canvas.timeline")?.focus({ preventScroll: true });
  const close = () => {
    setAnswer(null);
    show({ ...latest.current, selected: null });
  };
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const typing = event.target instanceof HTMLInputElement && event.target.type !== "checkbox";
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/") {
        event.preventDefault();
        document.getElementById("search")?.focus();
      } else if (event.key === "?") setHelp((shown) => !shown);
      else if (event.key === "[" || event.key === "]") {
        const part = answer?.kind === "gap" ? mostOf(answer.parts) : null;
        void next(part ?? largestIdle(page, view.device), event.key === "]");
      } else if (event.key === "Escape") {
        const menu = document.querySelector(".menu[open]");
        if (menu) menu.removeAttribute("open");
        else close();
      }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  });

  const lane = page.lane("device", view.device, view.device) ?? page.lanes("device")[0];
  const laneSums = lane && sums.get(lane);
  const launches = (thread: Lane) => {
    const times = sums.get(thread);
    const steady = Math.min(...page.lanes("device").map((lane) => page.steadyFrom(lane.device!)));
    return !times || times.between(LAUNCH, times.border(steady), times.intervals) > 0;
  };
  const { rows, groups } = useMemo(() => layout(page, curves, view, launches), [String(view.folded), String(view.hidden)]);
  const tabs = TABS.filter((tab) => tab.has(page.manifest.report, page));
  // From a table, the timeline may be out of the window.
  const shown = (next: View) => {
    show(next);
    const highlights = next.leaf !== view.leaf && next.leaf >= 0;
    if (next.selected !== view.selected || next.from !== view.from || highlights) reveal();
  };
  const tab = tabs.find((known) => known.id === view.tab) ?? tabs[0]!;
  const [from, to] = view.selected ?? [view.from, view.to];
  return (
    <div class="app">
      <div class="tools">
        <Search page={page} go={(name, forward) => void go(name, forward)} place={place} leave={leave}
          nothing={(text) => say(`Nothing is called ${text}.`)} changed={restart} />
        <button onClick={() => show({ ...view, from: 0, to: total })}>whole run</button>
        <details class="menu">
          <summary>rows</summary>
          <div>
            {groups.map((group) => (
              <label><input type="checkbox" checked={!group.hidden} onChange={() => hide(group)} /> {group.label}</label>
            ))}
          </div>
        </details>
        <button onClick={theme}>light or dark</button>
        <button onClick={() => setHelp(!help)} aria-expanded={help}>keys</button>
        <span class="status" role="status">{said || extent(view)}</span>
      </div>
      {help && (
        <dl class="keys">{KEYS.map(([name, what]) => [<dt>{name}</dt>, <dd>{what}</dd>])}</dl>
      )}
      <Legend page={page} />
      {page.manifest.left_out.map((note) => <p class="note">{note}</p>)}
      <div class="stage">
        {timeline.window_ns > 0 ? (
          <TimelineView page={page} sums={sums} rows={rows} view={view} show={select} latest={() => latest.current}
            pick={(hit, y) => void pick(hit, y)} fold={fold} />
        ) : (
          <p>Nothing with a time was recorded, so there is no timeline.</p>
        )}
        <Dock docked={Boolean(answer || view.selected)} at={asked}>
          {(answer || view.selected) && <button class="close" onClick={close} aria-label="close">×</button>}
          {answer && (
            <AnswerPanel answer={answer} page={page} zoom={zoom} next={(leaf, forward) => void next(leaf, forward)}
              highlight={(name) => show({ ...view, name })} />
          )}
          {lane && laneSums && (
            <div class="panel" role="region" aria-label="Breakdown">
              <Interval page={page} lane={lane} sums={laneSums} curves={curves} from={Math.round(from)} to={Math.round(to)} />
            </div>
          )}
        </Dock>
      </div>
      <div class="tabs" role="tablist">
        {tabs.map((known) => (
          <button role="tab" aria-selected={known === tab} id={`tab-${known.id}`} onClick={() => show({ ...view, tab: known.id })}>
            {known.title}
          </button>
        ))}
      </div>
      <div role="tabpanel" aria-labelledby={`tab-${tab.id}`} class="tabpanel">
        {tab.body({ page, view, show: shown, find })}
      </div>
    </div>
  );
}

/** The view with an existing device: ordinals need not start with 0. */
function onDevice(page: Page, view: View): View {
  const devices = page.lanes("device");
  const known = devices.some((lane) => lane.device === view.device);
  return known ? view : { ...view, device: devices[0]?.device ?? 0 };
}

/** A list with or without an entry. */
const changed = (list: string[], id: string) => (list.includes(id) ? list.filter((known) => known !== id) : [...list, id]);

/** The shown part of the run, with digits that tell its ends apart. */
function extent({ from, to }: View): string {
  const step = (to - from) / 100;
  return `${moment(from, step)} to ${moment(to, step)}`;
}

/** Scrolls to the timeline, if most of it is not in the window. */
function reveal(): void {
  const box = document.querySelector(".rows")?.getBoundingClientRect();
  if (!box) return;
  const seen = Math.min(box.bottom, window.innerHeight) - Math.max(box.top, 0);
  if (seen < Math.min(box.height, window.innerHeight / 3)) document.querySelector(".tools")!.scrollIntoView();
}

/** The cause of most of a gap. */
function mostOf(parts: { leaf: number; duration: number }[]): number {
  const sums = new Map<number, number>();
  for (const { leaf, duration: nanos } of parts) sums.set(leaf, (sums.get(leaf) ?? 0) + nanos);
  return [...sums].reduce((a, b) => (b[1] > a[1] ? b : a))[0];
}

/** The cause of most idle time. */
function largestIdle(page: Page, device: number): number {
  const { leaves, report } = page.manifest;
  const of = report.devices.find((row: { id: number }) => row.id === device)?.leaves ?? {};
  const nanos = (leaf: number) => (leaves[leaf]!.busy ? -1 : (of[leaves[leaf]!.name] ?? 0));
  return leaves.reduce((best, _, leaf) => (nanos(leaf) > nanos(best) ? leaf : best), 0);
}

function Legend({ page }: { page: Page }) {
  const used = new Set<number>();
  for (const device of page.manifest.report.devices) {
    page.manifest.leaves.forEach((leaf) => device.leaves[leaf.name] > 0 && used.add(leaf.cause));
  }
  return (
    <p class="legend">
      {page.manifest.causes.map((cause, index) =>
        used.has(index) ? <span><Mark page={page} cause={index} /> {cause.words} </span> : null,
      )}
    </p>
  );
}

function theme(): void {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  window.dispatchEvent(new Event("gpuwhy-theme"));
}

async function start(): Promise<void> {
  const root = document.getElementById("app");
  if (!root) return;
  try {
    const page = await Page.read();
    if (!page.manifest.timeline) return;
    beginsAfter(page.manifest.timeline.after_start_ns);
    const [sums, curves] = await Promise.all([readSums(page), readCurves(page)]);
    render(<App page={page} sums={sums} curves={curves} />, root);
    document.body.classList.add("ready");
    // For benchmarks: milliseconds since the page was requested.
    requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("gpuwhy-drawn")));
  } catch (error) {
    // The static answer stays.
    root.textContent = `The timeline cannot be shown: ${error instanceof Error ? error.message : String(error)}`;
  }
}

void start();
