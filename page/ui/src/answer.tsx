// Result of a click on the timeline.

import type { Page } from "./data";
import { count, duration, percent } from "./format";
import { Leaves, Mark, type Answer, type Gap, type Picked } from "./selection";

interface Actions {
  page: Page;
  zoom: (from: number, to: number) => void;
  /** Goes to the next or the previous idle time of this cause. */
  next: (leaf: number, forward: boolean) => void;
  highlight: (name: number) => void;
  close: () => void;
}

/** The report's row about the same kind of idle time. */
function alike(page: Page, device: number, leaf: string, kind: string, name: string) {
  const of = page.manifest.report.devices.find((row: { id: number }) => row.id === device);
  const rows: { leaf: string; kind: string; name: string | null }[] = of?.gaps ?? [];
  // Kernel names lack their parameters on both sides; host activity has different words in the JSON.
  return rows.find((row) => row.leaf === leaf && row.kind === kind && (kind === "host" || (row.name ?? "") === name));
}

/** Best case in the report without this cause. */
function best_case(page: Page, device: number, cause: number) {
  const { without } = page.manifest.causes[cause]!;
  const of = page.manifest.report.devices.find((row: { id: number }) => row.id === device);
  return of?.what_if?.scenarios?.find((row: { kind: string }) => row.kind === without) ?? null;
}

function subjectWords(page: Page, subject: number): string {
  const [kind, name] = page.subject(subject);
  switch (kind) {
    case "call":
      return `in or after ${name}`;
    case "kernel":
      return `before ${name}`;
    case "event":
      return `for an event after ${name}`;
    case "host":
      return `the launching thread was ${name}`;
    case "none":
      return "";
    default:
      return `before ${name}`;
  }
}

function GapPanel({ gap, page, next, zoom }: { gap: Gap } & Actions) {
  const { leaves, causes, report } = page.manifest;
  // A long gap alternates between the same causes.
  const together = new Map<string, { leaf: number; subject: number; duration: number }>();
  for (const { leaf, subject, duration: nanos } of gap.parts) {
    const key = `${leaf} ${subject}`;
    const row = together.get(key) ?? { leaf, subject, duration: 0 };
    together.set(key, { ...row, duration: row.duration + nanos });
  }
  // The cause of most of the gap counts, with its longest part.
  const most = [...together.values()].sort((a, b) => b.duration - a.duration)[0];
  const largest = gap.parts
    .filter((part) => part.leaf === most?.leaf && part.subject === most.subject)
    .sort((a, b) => b.duration - a.duration)[0];
  if (!largest) return <p>The segments of this gap are not in this page.</p>;
  const leaf = leaves[largest.leaf]!;
  const cause = causes[leaf.cause]!;
  const [kind, name] = page.subject(largest.subject);
  const like = alike(page, gap.device, leaf.name, kind, name) as
    | { count: number; total_ns: number; longest_ns: number }
    | undefined;
  const best = best_case(page, gap.device, leaf.cause) as {
    speedup: number | null; low: number | null; high: number | null; step_ns: number;
  } | null;
  const device = report.devices.find((row: { id: number }) => row.id === gap.device);
  const whole: number = device?.leaves?.[leaf.name] ?? 0;
  const stack = page.stack(largest.stack);
  return (
    <div id="gap">
      <h2>
        <Mark page={page} cause={leaf.cause} /> Gap of {duration(gap.to - gap.from)} <small>{gap.to - gap.from} ns</small>
      </h2>
      <Leaves
        page={page}
        of={[...together.values()].map((part) => ({
          leaf: part.leaf,
          nanos: part.duration,
          note: subjectWords(page, part.subject),
        }))}
      />
      <dl>
        <dt>ended by</dt>
        <dd>{gap.ended ? `${gap.ended.text} on stream ${gap.ended.stream}` : "nothing that was recorded"}</dd>
        <dt>launched by</dt>
        <dd>
          {gap.launch
            ? `${gap.launch.name} of thread ${gap.launch.thread}, entered ${
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
              <div>{frame.text} {frame.file}{frame.line ? `:${frame.line}` : ""}</div>
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
          {best?.speedup
            ? `${best.speedup.toFixed(2)}x if ${cause.words} cost nothing` +
              (best.low && best.high ? ` (${best.low.toFixed(2)}x to ${best.high.toFixed(2)}x)` : "") +
              `: a step of ${duration(best.step_ns)}`
            : "no replay tells; the time above is the bound"}
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
          <button onClick={() => zoom(picked.other!.from, picked.other!.to)}>{picked.other.label.slice(0, 90)}</button>
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
      <button class="close" onClick={props.close} aria-label="close">×</button>
      {answer.kind === "gap" ? <GapPanel {...props} gap={answer} /> : <EventPanel {...props} picked={answer} />}
    </div>
  );
}
