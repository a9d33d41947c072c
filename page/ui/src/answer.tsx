// Result of a click on the timeline.

import type { Gain, Page } from "./data";
import { count, duration, percent, shortFile } from "./format";
import { Leaves, Mark, type Answer, type Gap, type Picked } from "./selection";

interface Actions {
  page: Page;
  zoom: (from: number, to: number) => void;
  /** Goes to the next or the previous idle time of this cause. */
  next: (leaf: number, forward: boolean) => void;
  highlight: (name: number) => void;
}

/** The report's row about the same kind of idle time. */
function alike(page: Page, device: number, leaf: string, kind: string, name: string) {
  const of = page.manifest.report.devices.find((row: { id: number }) => row.id === device);
  const rows: { leaf: string; kind: string; name: string | null }[] = of?.gaps ?? [];
  // A copy has no name in the report.
  return rows.find((row) => row.leaf === leaf && row.kind === kind && (row.name ?? name) === name);
}

/** Best case in the report without this cause. */
function best_case(page: Page, device: number, cause: number): Gain | undefined {
  const { without } = page.manifest.causes[cause]!;
  return page.manifest.gains.find((gain) => gain.device === device && gain.kind === without);
}

/** What idle time waits for: a subject of the report's gaps in words. */
export function subjectWords(page: Page, kind: string, name: string): string {
  switch (kind) {
    case "call":
      return `in or after ${name}`;
    case "kernel":
      return `before ${name}`;
    case "copy_from_host":
      return "before a copy from the host";
    case "other_transfer":
      return "before a copy or memset";
    case "event":
      return `for an event after ${name}`;
    case "host":
      return `the launching thread was ${page.manifest.activities.find(([known]) => known === name)?.[1] ?? name}`;
    default:
      return "";
  }
}

function GapPanel({ gap, page, next, zoom }: { gap: Gap } & Actions) {
  const { leaves, report } = page.manifest;
  // A long gap alternates between the same causes.
  const together = new Map<string, { leaf: number; subject: number; duration: number }>();
  for (const { leaf, subject, duration: nanos } of gap.parts) {
    const key = `${leaf} ${subject}`;
    const row = together.get(key) ?? { leaf, subject, duration: 0 };
    together.set(key, { ...row, duration: row.duration + nanos });
  }
  // The cause of most of the gap counts, with its longest part.
  const sorted = [...together.values()].sort((a, b) => b.duration - a.duration);
  const most = sorted[0];
  const parts = sorted.map((part) => ({ leaf: part.leaf, nanos: part.duration, note: subjectWords(page, ...page.subject(part.subject)) }));
  const large = ({ nanos }: { nanos: number }) => nanos >= (gap.to - gap.from) / 100;
  const largest = gap.parts
    .filter((part) => part.leaf === most?.leaf && part.subject === most.subject)
    .sort((a, b) => b.duration - a.duration)[0];
  if (!largest) return <p>The segments of this gap are not in this page.</p>;
  const leaf = leaves[largest.leaf]!;
  const [kind, name] = page.subject(largest.subject);
  const like = alike(page, gap.device, leaf.name, kind, name) as
    | { count: number; total_ns: number; longest_ns: number }
    | undefined;
  const best = best_case(page, gap.device, leaf.cause);
  const device = report.devices.find((row: { id: number }) => row.id === gap.device);
  const whole: number = device?.leaves?.[leaf.name] ?? 0;
  const stack = page.stack(largest.stack);
  return (
    <div id="gap">
      <h2>
        <Mark page={page} cause={leaf.cause} /> Gap of {duration(gap.to - gap.from)} <small>{gap.to - gap.from} ns</small>
      </h2>
      <Leaves page={page} of={parts.filter(large)} whole={gap.to - gap.from} />
      {parts.some((part) => !large(part)) && (
        <details>
          <summary>parts below 1 %: {parts.filter((part) => !large(part)).length}</summary>
          <Leaves page={page} of={parts.filter((part) => !large(part))} whole={gap.to - gap.from} />
        </details>
      )}
      <dl>
        <dt>ended by</dt>
        <dd>{gap.ended ? `${gap.ended.text} on stream ${gap.ended.stream}` : "nothing that was recorded"}</dd>
        <dt>launched by</dt>
        <dd>
          {gap.launch
            ? `${gap.launch.name} of ${page.thread(gap.launch.thread)}, entered ${
                gap.launch.begin >= gap.from
                  ? `${duration(gap.launch.begin - gap.from)} into the gap`
                  : `${duration(gap.from - gap.launch.begin)} before the gap`
              }, ${duration(gap.launch.duration)} long`
            : "no call that was recorded"}
        </dd>
        <dt>samples</dt>
        <dd>
          {gap.sampled
            ? `${gap.sampled} of the launching thread during the gap:`
            : "none of the launching thread during the gap; the cause follows from calls and times"}
          {gap.samples.slice(0, 4).map((row) => (
            <div class="name">{row.count} at {row.text}</div>
          ))}
        </dd>
        {stack.length > 0 && <dt>stack</dt>}
        {stack.length > 0 && (
          <dd class="name">
            {stack.slice(0, 6).map((frame) => (
              <div title={frame.file}>{frame.text} {shortFile(frame.file)}{frame.line ? `:${frame.line}` : ""}</div>
            ))}
          </dd>
        )}
        <dt>all like it</dt>
        <dd>
          {like
            ? `${count(like.count)} gaps, ${duration(like.total_ns)} in all after start-up, the longest ${duration(like.longest_ns)}; `
            : ""}
          {leaf.words}: {duration(whole)} of the whole run
          {device?.window_ns ? ` (${percent(whole / device.window_ns)})` : ""}
        </dd>
        <dt>gain at most</dt>
        <dd>
          {best ? `${best.words} if ${best.condition}: a step of ${duration(best.step_ns)}` : "less than 1 %, or not simulated"}
        </dd>
      </dl>
      <p class="buttons">
        <button onClick={() => next(largest.leaf, false)} title="key [">◂ same cause</button>
        <button onClick={() => next(largest.leaf, true)} title="key ]">same cause ▸</button>
        <button onClick={() => zoom(gap.from, gap.to)}>zoom to the gap</button>
        <button onClick={() => void navigator.clipboard?.writeText(location.href).catch(() => {})}>copy link</button>
      </p>
    </div>
  );
}

function EventPanel({ picked, zoom, highlight }: { picked: Picked } & Actions) {
  return (
    <div id="event">
      <h2 class="name">{picked.title}</h2>
      <dl>
        {picked.facts.map(([name, value]) => [<dt>{name}</dt>, <dd class="name">{value}</dd>])}
      </dl>
      <p class="buttons">
        {picked.other && (
          <button title={picked.other.label} onClick={() => zoom(picked.other!.from, picked.other!.to)}>{picked.other.label.slice(0, 90)}</button>
        )}
        <button onClick={() => zoom(picked.from, picked.to)}>zoom to it</button>
        {picked.name > 0 && <button onClick={() => highlight(picked.name)}>show all of this name</button>}
      </p>
    </div>
  );
}

export function AnswerPanel(props: { answer: Answer } & Actions) {
  const { answer } = props;
  return (
    <div class="panel" role="region" aria-label="Answer" aria-live="polite">
      {answer.kind === "gap" ? <GapPanel {...props} gap={answer} /> : <EventPanel {...props} picked={answer} />}
    </div>
  );
}
