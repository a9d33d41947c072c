// The what-if switch: moves the operations of a step to their positions without one cost.

import { useEffect, useRef, useState } from "preact/hooks";
import { Numbers, type Page, type ReplayEntry } from "./data";
import { duration, marks } from "./format";
import { colors } from "./paint";
import type { View } from "./view";

type Step = ReplayEntry["steps"][0];

/** The operations of a step, by column. */
export interface Replayed {
  begin: number[];
  duration: number[];
  stream: number[];
  kind: number[];
  /** For each scenario: start and duration. */
  variants: { begin: number[]; duration: number[] }[];
}

export function replayed(bytes: Uint8Array, count: number, variants: number): Replayed {
  const numbers = new Numbers(bytes);
  const column = () => {
    let value = 0;
    return Array.from({ length: count }, () => (value += numbers.signed()));
  };
  const [begin, lasted, stream, kind] = [column(), column(), column(), column()];
  const all = Array.from({ length: variants }, () => ({ begin: column(), duration: column() }));
  return { begin, duration: lasted, stream, kind, variants: all };
}

/** Duration of the switch animation, milliseconds. */
const GLIDE = 700;
const ROW = 26;
const LEFT = 110;
/** The measured run and the run without tracing: scenarios that are not a fix. */
const AS_IT_RAN = 0;
const UNTRACED = 1;

/** Positions between two scenarios; `part` is 0 at the first, 1 at the second. Scenario 0 is the measured run. */
function at(of: Replayed, variant: number, i: number): [number, number] {
  if (variant === AS_IT_RAN) return [of.begin[i]!, of.duration[i]!];
  const { begin, duration: lasted } = of.variants[variant]!;
  return [begin[i]!, lasted[i]!];
}

function draw(canvas: HTMLCanvasElement, page: Page, of: Replayed, step: Step, from: number, to: number, part: number) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const streams = [...new Set(of.stream)].sort((a, b) => a - b);
  const rows = [...streams.map((stream) => [stream, true]), ...streams.map((stream) => [stream, false])] as [number, boolean][];
  const high = rows.length * ROW + 22;
  canvas.style.height = `${high}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(high * ratio);
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const palette = colors(page, context);
  context.fillStyle = palette.ground;
  context.fillRect(0, 0, width, high);
  const real = step.to - step.from;
  const longest = Math.max(real, ...step.ends);
  const x = (time: number) => LEFT + (Math.max(0, time) / longest) * (width - LEFT - 8);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillStyle = palette.quiet;
  for (const mark of marks(0, longest, width / 130)) {
    context.fillRect(x(mark), high - 20, 1, 5);
    context.fillText(duration(mark), x(mark) + 3, high - 10);
  }
  rows.forEach(([stream, ran], index) => {
    const top = index * ROW;
    context.fillStyle = palette.panel;
    context.fillRect(LEFT, top, width - LEFT, ROW - 4);
    context.fillStyle = palette.quiet;
    context.fillText(`${ran ? "as it ran" : "then"}, stream ${stream}`, 2, top + ROW / 2 - 2);
    for (let i = 0; i < of.begin.length; i++) {
      if (of.stream[i] !== stream) continue;
      const [a, b] = [at(of, ran ? AS_IT_RAN : from, i), at(of, ran ? AS_IT_RAN : to, i)];
      const begin = a[0] + (b[0] - a[0]) * part;
      const lasted = a[1] + (b[1] - a[1]) * part;
      if (lasted <= 0) continue;
      context.fillStyle = palette.kinds[of.kind[i]!]!;
      context.fillRect(x(begin), top + 2, Math.max(0.5, x(begin + lasted) - x(begin)), ROW - 8);
    }
  });
  // The ends of the step: as measured, and in the scenario.
  const end = (variant: number) => (variant === AS_IT_RAN ? real : step.ends[variant]!);
  context.fillStyle = palette.text;
  context.fillRect(x(real), 0, 1.5, streams.length * ROW);
  context.fillRect(x(end(from) + (end(to) - end(from)) * part), streams.length * ROW, 1.5, streams.length * ROW);
}

/** The words of the bottleneck without one cost. The plan adds up its fixes, so only its first is without one cost alone. */
export function bottleneckAfter(page: Page, device: number, kind: string): string | undefined {
  const { bottleneck, devices } = page.manifest.report;
  const [first] = bottleneck.plan;
  const scenarios: { kind: string; speedup: number }[] =
    devices.find((row: { id: number }) => row.id === device)?.what_if?.scenarios ?? [];
  const alone = scenarios.find((scenario) => scenario.kind === kind);
  if (!alone || first?.kind !== kind || first.speedup !== alone.speedup) return undefined;
  return page.manifest.causes.find((cause) => cause.name === first.then)?.words;
}

/** A condition without its examples. */
const short = (condition: string) => condition.replace(/ \(.*/, "");

export function ReplayView({ page, view, show }: { page: Page; view: View; show: (view: View) => void }) {
  const entry = page.manifest.timeline?.replay;
  const steps = entry?.steps.filter((step) => step.device === view.device) ?? [];
  const [chosen, choose] = useState(0);
  const [of, set] = useState<Replayed | null>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const before = useRef(AS_IT_RAN);
  const step = steps[Math.min(chosen, steps.length - 1)];
  useEffect(() => {
    set(null);
    if (!entry || !step) return;
    let current = true;
    void page.bytes(step.block).then((bytes) => current && set(replayed(bytes, step.count, entry.variants.length)));
    return () => {
      current = false;
    };
  }, [step?.block]);
  const variant = entry && view.variant < entry.variants.length ? view.variant : AS_IT_RAN;
  useEffect(() => {
    if (!of || !step || !canvas.current) return;
    const target = canvas.current;
    const from = before.current;
    before.current = variant;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches || from === variant) {
      draw(target, page, of, step, variant, variant, 1);
      return;
    }
    const begun = performance.now();
    let frame = 0;
    const glide = (now: number) => {
      const part = Math.min(1, Math.max(0, (now - begun) / GLIDE));
      draw(target, page, of, step, from, variant, part * part * (3 - 2 * part));
      if (part < 1) frame = requestAnimationFrame(glide);
    };
    frame = requestAnimationFrame(glide);
    return () => cancelAnimationFrame(frame);
  });
  if (!entry || !step) {
    return <p>No step can be replayed here: the simulation is not believed, or it paused during the steps that were tried.</p>;
  }
  const real = step.to - step.from;
  const then = variant === AS_IT_RAN ? real : step.ends[variant]!;
  const next = bottleneckAfter(page, view.device, entry.variants[variant]![0]);
  const gain = page.manifest.gains.find((row) => row.device === view.device && row.kind === entry.variants[variant]![0]);
  // Scenarios without any effect are omitted from the switch.
  const useful = entry.variants.map((_, index) => index)
    .filter((index) => index > UNTRACED && (steps.some((of) => of.ends[index]! < of.ends[UNTRACED]! * 0.99) || index === variant));
  return (
    <div id="replay">
      <h2>A step if one cost were gone</h2>
      <p class="buttons" role="group" aria-label="Variant">
        {[AS_IT_RAN, ...useful].map((index) => (
          <button aria-pressed={index === variant} onClick={() => show({ ...view, variant: index })}>
            {index === AS_IT_RAN ? "as it ran" : `if ${short(entry.variants[index]![1])}`}
          </button>
        ))}
        {steps.map((_, index) => (
          <button class="step" aria-pressed={step === steps[index]} onClick={() => choose(index)}>step {index + 1} of {steps.length}</button>
        ))}
      </p>
      <canvas ref={canvas} class="replay" role="img"
        aria-label={`The step as it ran, ${duration(real)}, and if ${entry.variants[variant]![1]}, ${duration(then)}`} />
      <p aria-live="polite">
        {variant === AS_IT_RAN
          ? `As it ran the step took ${duration(real)}; simulated ${duration(step.ends[AS_IT_RAN]!)}, without tracing ${duration(step.ends[UNTRACED]!)}.`
          : `If ${entry.variants[variant]![1]}: ${duration(real)} becomes ${duration(then)}, ${duration(real - then)} less.`}
        {gain ? ` Over all steps: ${gain.words}.` : ""}
        {next ? ` Then the bottleneck is ${next}.` : ""}
      </p>
    </div>
  );
}
