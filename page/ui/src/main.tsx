// The page: reads the embedded data, and draws it next to the static report. Without scripts only the static report is
// shown, and it is restored if anything here fails.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { AnswerPanel } from "./answer";
import { GAP_END, Page, type Curve, type Lane } from "./data";
import { duration, quantity } from "./format";
import { meanOf } from "./paint";
import { eventIn, gapAt, Mark, Interval, type Answer } from "./selection";
import { neighbor, type Sums } from "./sums";
import { readCurves, readSums, TimelineView, type Hit } from "./timeline";
import { TABS } from "./views";
import { around, clamp, fromFragment, toFragment, type View } from "./view";

const KEYS: [string, string][] = [
  ["W S, arrows up and down, wheel", "zoom"], ["A D, arrows, shift and wheel", "move"], ["F", "the whole run"],
  ["drag", "select an interval: its exact breakdown"], ["click", "ask about a gap, kernel or call"],
  ["[ ]", "the gap of the same cause before and behind"], ["Enter", "zoom to the selection"],
  ["/", "search a name"], ["Esc", "clear"], ["?", "these keys"],
];

/** Finds the next event of a name after a time; wraps around once. */
async function occurrence(page: Page, name: number, after: number): Promise<[Lane, number, number] | null> {
  const lanes = page.manifest.timeline?.lanes.filter((lane) => lane.columns[0] === "name") ?? [];
  let best: [Lane, number, number] | null = null;
  for (const start of [after, -1]) {
    for (const lane of lanes) {
      for (const [index, chunk] of lane.chunks.entries()) {
        if (chunk.last < start || (best && chunk.first > best[1])) continue;
        const events = await page.chunk(lane, index);
        const names = events.values[0]!;
        for (let i = 0; i < events.count; i++) {
          const at = events.begin[i]!;
          if (names[i] !== name || at <= start || (best && at >= best[1])) continue;
          best = [lane, at, at + events.duration[i]!];
          break;
        }
      }
    }
    if (best) return best;
  }
  return null;
}

function App({ page, sums, curves }: { page: Page; sums: Map<Lane, Sums>; curves: Curve[] }) {
  const timeline = page.manifest.timeline!;
  const total = timeline.window_ns;
  const [view, setView] = useState<View>(() => onDevice(page, fromFragment(location.hash, total)));
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [hovered, setHovered] = useState<Hit | null>(null);
  const [search, setSearch] = useState("");
  const [said, say] = useState("");
  const [help, setHelp] = useState(false);
  const latest = useRef(view);
  const show = (next: View) => {
    latest.current = onDevice(page, clamp(next, total));
    setView(latest.current);
  };

  useEffect(() => {
    try {
      history.replaceState(null, "", "#" + toFragment(view));
    } catch {
      // A sandbox may refuse it; the page works without it.
    }
  }, [view]);
  useEffect(() => {
    const changed = () => show(fromFragment(location.hash, total));
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);

  const zoom = (from: number, to: number) => show(around({ ...view, selected: [from, to] }, from, to, total));
  const pick = async (hit: Hit) => {
    const { row, at } = hit;
    if (row.kind === "steps") {
      const of = timeline.steps.find((steps) => steps.device === row.device);
      let position = 0;
      for (const [gap, lasted] of of?.rows ?? []) {
        const from = position + gap;
        position = from + lasted;
        if (from <= at && at < position) show({ ...view, selected: [from, position], device: row.device ?? 0 });
      }
      return;
    }
    if (row.kind === "device") {
      const gap = await gapAt(page, row.device!, at);
      if (gap) {
        setAnswer(gap);
        show({ ...view, selected: [gap.from, gap.to], device: row.device! });
        return;
      }
      const work = page.lanes("stream").filter((lane) => lane.device === row.device);
      for (const lane of work) {
        const found = await eventIn(page, { ...hit, row: { ...row, lane } });
        if (found) {
          setAnswer(found);
          return;
        }
      }
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
  const find = async (text: string) => {
    const wanted = text.toLowerCase();
    const { names } = page.names;
    let name = names.findIndex(([known], index) => index > 0 && known.toLowerCase() === wanted);
    if (name < 0) name = names.findIndex(([known], index) => index > 0 && known.toLowerCase().includes(wanted));
    const found = name > 0 ? await occurrence(page, name, view.selected?.[0] ?? view.from) : null;
    if (!found) {
      say(name > 0 ? `No event of ${names[name]![0].slice(0, 80)} is in this file.` : `Nothing is called ${text}.`);
      return;
    }
    const [, from, to] = found;
    say(names[name]![0].slice(0, 120));
    show(around({ ...view, name, selected: [from, to] }, from, to, total));
  };
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const typing = event.target instanceof HTMLInputElement;
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/") {
        event.preventDefault();
        document.getElementById("search")?.focus();
      } else if (event.key === "?") setHelp((shown) => !shown);
      else if (event.key === "[" || event.key === "]") {
        const part = answer?.kind === "gap" ? mostOf(answer.parts) : null;
        void next(part ?? largestIdle(page, view.device), event.key === "]");
      } else if (event.key === "Escape") setAnswer(null);
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  });

  const lane = page.lane("device", view.device, view.device) ?? page.lanes("device")[0];
  const laneSums = lane && sums.get(lane);
  const tabs = TABS.filter((tab) => tab.has(page.manifest.report, page));
  const tab = tabs.find((known) => known.id === view.tab) ?? tabs[0]!;
  const [from, to] = view.selected ?? [view.from, view.to];
  return (
    <div class="app">
      <div class="tools">
        <label>
          search{" "}
          <input id="search" value={search} placeholder="kernel, call, range" onInput={(e) => setSearch(e.currentTarget.value)}
            onKeyDown={(event) => event.key === "Enter" && void find(search)} />
        </label>
        <button onClick={() => show({ ...view, from: 0, to: total })}>whole run</button>
        <button onClick={theme}>light or dark</button>
        <button onClick={() => setHelp(!help)} aria-expanded={help}>keys</button>
        <span class="status" role="status">
          {hovered ? hoverText(page, hovered) : said || `${duration(view.from)} to ${duration(view.to)}`}
        </span>
      </div>
      {help && (
        <dl class="keys">{KEYS.map(([name, what]) => [<dt>{name}</dt>, <dd>{what}</dd>])}</dl>
      )}
      <Legend page={page} />
      {page.manifest.left_out.map((note) => <p class="note">{note}</p>)}
      {lane ? (
        <TimelineView page={page} sums={sums} curves={curves} view={view} show={show}
          latest={() => latest.current} pick={(hit) => void pick(hit)} hover={setHovered} />
      ) : (
        <p>No GPU work was recorded, so there is no timeline.</p>
      )}
      <div class="below">
        {answer && (
          <AnswerPanel answer={answer} page={page} zoom={zoom} next={(leaf, forward) => void next(leaf, forward)}
            highlight={(name) => show({ ...view, name })} close={() => setAnswer(null)} />
        )}
        {lane && laneSums && (
          <div class="panel" role="region" aria-label="Breakdown">
            <Interval page={page} lane={lane} sums={laneSums} curves={curves} from={Math.round(from)} to={Math.round(to)} />
          </div>
        )}
      </div>
      <div class="tabs" role="tablist">
        {tabs.map((known) => (
          <button role="tab" aria-selected={known === tab} id={`tab-${known.id}`} onClick={() => show({ ...view, tab: known.id })}>
            {known.title}
          </button>
        ))}
      </div>
      <div role="tabpanel" aria-labelledby={`tab-${tab.id}`} class="tabpanel">
        {tab.body({ page, view, show, find: (name) => void find(name) })}
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

function hoverText(page: Page, { row, at, slack }: Hit): string {
  if (row.curve) {
    const value = meanOf(row.curve, at, at + slack);
    const text = Number.isNaN(value) ? "not known" : quantity(value, row.curve.unit);
    return `${duration(at)}  ${row.label}: ${text}`;
  }
  const lane = row.lane;
  let what = row.label;
  if (lane && row.kind !== "minimap") {
    for (const index of page.chunksIn(lane, at, at + 1)) {
      const events = page.peek(lane, index);
      if (!events) continue;
      for (let i = events.count - 1; i >= 0; i--) {
        if (events.begin[i]! > at || events.begin[i]! + events.duration[i]! <= at) continue;
        const value = events.values[0]![i]!;
        const text = lane.kind === "device" ? page.manifest.leaves[value % GAP_END]!.words
          : lane.kind === "samples" ? "sample" : page.name(value);
        what += `: ${text.slice(0, 100)}, ${duration(events.duration[i]!)}`;
        return `${duration(at)}  ${what}`;
      }
    }
  }
  return `${duration(at)}  ${what}`;
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
