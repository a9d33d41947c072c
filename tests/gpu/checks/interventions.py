"""A bottleneck is right if removing it makes the program faster: each program is run before and after its fix.

The gain is real: both programs are without gpuwhy, and print their own rate after start-up. Each rate is the median of
several runs, taken alternately, so that a host that becomes slower affects both. The bottleneck is that of the program
before the fix, traced, in a run between them. The report's prediction for just that fix is written next to the gain,
with its interval. A single prediction does not fail: `interventions.calibration` judges all of them.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Generator, Iterator

import gains
from harness import Check, Mode, Result, Run, Suite, expect, skipped
from intervention_table import INTERVENTIONS, ROUNDS, Intervention
from prepared import Group, Plan, Prepared, finish_all
from trace_report import Trace, single

# Interventions whose programs are started together.
SIZE = 10
# Time needed by an intervention that has to start its group, seconds; others need half of it.
CREDIT = 25.0


def rate(text: str) -> float:
    """Steps per second as a program printed them; 0 if it did not."""
    match = re.search(r"([\d.]+) steps/s", text)
    return float(match[1]) if match else 0.0


def runs(case: Intervention, *more: str) -> dict[str, Plan]:
    """The bare programs run once before their first measured run, the traced one must not: its trace begins with its
    own work. `more`: further arguments of the bare ones."""
    length = ("--seconds", f"{case.seconds:g}", *more)
    rehearse = "--seconds 0.05"

    def plan(arguments: tuple[str, ...], mode: Mode, seconds: tuple[str, ...], rehearse: str | None) -> Plan:
        return Plan(case.script, (*arguments, *seconds), case.libraries, mode, rehearse=rehearse)

    return {
        "before": plan(case.before, Mode.BARE, length, rehearse),
        "after": plan(case.after, Mode.BARE, length, rehearse),
        "traced": plan(case.before, Mode.VARIABLE, ("--seconds", f"{case.traced_seconds:g}"), None)}


def plans(suite: Suite, name: str) -> dict[str, Plan]:
    return runs(INTERVENTIONS[name])


def turns(programs: dict[str, Prepared], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Rates of each program, taken alternately; the traced one runs within the first round. A program without a fix has
    that one alone."""
    rates: dict[str, list[float]] = {role: [] for role in programs}
    for number in range(rounds):
        for role in ("before", "traced", "after") if number == 0 else ("before", "after"):
            if role not in programs:
                continue
            rates[role].append(rate(programs[role].turn()))
            if role == "traced":
                programs[role].finish()  # it writes the rest of its trace, and must not do that while the others run
    return rates


def row(name: str, case: Intervention, rates: dict[str, list[float]], trace: Trace) -> dict:
    """The line of measured.jsonl. Times are nanoseconds."""
    scenario = trace.prediction(case.scenario)
    before, traced = statistics.median(rates["before"]), rates["traced"][0]
    return {
        "name": name, "fix": case.fix, "held_out": case.held_out, "expected": list(case.bottlenecks), "bottleneck": trace.bottleneck,
        "share": trace.report["bottleneck"].get("share"), "bare_before": rates["before"], "bare_after": rates["after"],
        "traced": traced, "scenario": case.scenario, "speedup": scenario.get("speedup"), "low": scenario.get("low"),
        "high": scenario.get("high"), "scenarios": {kind: one["speedup"] for kind, one in trace.scenarios().items()},
        "recorded_step_ns": trace.step_ns(), "untraced": trace.untraced(), "plan": trace.plan(), "evidence": trace.evidence,
        "advice": trace.advice, "bare_ns": 1e9 / before if before else None, "traced_ns": 1e9 / traced if traced else None,
        "predicted_untraced_ns": trace.predicted_step(1e9 / traced) if traced else None}


def prediction(found: dict, real: float) -> str:
    """The prediction for the fix, in words."""
    if found["speedup"] is None:
        return f"no prediction{' (' + found['scenario'] + ' is not in the report)' if found['scenario'] else ''}"
    interval = ""
    if found["low"] is not None and found["high"] is not None:
        where = "inside" if found["low"] <= real <= found["high"] else "outside"
        interval = f" ({found['low']:.2f} to {found['high']:.2f}: {where})"
    return f"{found['scenario']} {found['speedup']:.2f}x{interval}, off by {found['speedup'] / real - 1:+.1%}"


def planned(plan: list[dict]) -> str:
    """The kinds of a plan and the gain with each and those before it."""
    return ", ".join(f"{one['kind']} {one['speedup']:.2f}x" for one in plan) or "none"


def measured(
        suite: Suite, prefix: str, name: str, case: Intervention, programs: dict[str, Prepared],
        read: Callable[[Suite, Run], Trace]) -> Generator[Result, None, tuple[Trace, dict[str, list[float]]] | None]:
    """The trace, read by `read`, and the rates of each program; None if a program printed no rate."""
    try:
        rates = turns(programs, case.rounds)
    finally:
        finish_all(programs.values())
    traced = programs["traced"].finish()
    if traced.code != 0:
        yield expect(f"{prefix}.ends", False, f"traced: {traced.ending()}")
    suite.keep_trace(name, traced)
    trace = read(suite, traced)
    if not all(value > 0 for values in rates.values() for value in values):
        yield expect(f"{prefix}.gain", False, f"a program printed no rate: {rates}")
        return None
    return trace, rates


def compared(
        suite: Suite, prefix: str, name: str, case: Intervention, programs: dict[str, Prepared],
        read: Callable[[Suite, Run], Trace]) -> Generator[Result, None, tuple[Trace, dict] | None]:
    """Lines about the gain and the bottleneck. Returns the trace, read by `read`, and the line of measured.jsonl; None
    if there is no gain."""
    both = yield from measured(suite, prefix, name, case, programs, read)
    if both is None:
        return None
    trace, rates = both
    found = row(name, case, rates, trace)
    before, after = statistics.median(rates["before"]), statistics.median(rates["after"])
    real = after / before
    yield expect(
        f"{prefix}.gain", case.least_gain is None or real >= case.least_gain,
        f"{case.fix}: {before:.1f} to {after:.1f} steps/s, {real:.2f}x; {prediction(found, real)}; "
        f"traced {rates['traced'][0]:.1f} steps/s; plan: {planned(found['plan'])}")
    yield expect(
        f"{prefix}.bottleneck", trace.bottleneck in case.bottlenecks,
        f"expected {' or '.join(case.bottlenecks)}, got {trace.bottleneck_line()}")
    return trace, found


def judge(suite: Suite, name: str, programs: dict[str, Prepared]) -> Iterator[Result]:
    found = yield from compared(suite, f"interventions.{name}", name, INTERVENTIONS[name], programs, single)
    if found is not None:
        suite.record("intervention", found[1])


GROUP = Group("interventions", plans, list(INTERVENTIONS), SIZE)


def calibration(suite: Suite) -> Iterator[Result]:
    """Judges whether intervals and predictions of this run keep their guarantees; the held-out half is separate."""
    found = gains.gains(suite.recorded("intervention"))
    (suite.out / "gains.md").write_text(gains.gains_table(found) + "\n" + gains.untraced_table(suite.recorded("intervention")))
    for half, members in gains.halves(found).items():
        print(f"{half}: {gains.summarize(members).text()}", flush=True)
    summary = gains.summarize(found)
    judged = gains.is_calibrated(summary)
    if judged is None:
        yield skipped("interventions.calibration", f"too few predictions with an interval: {summary.text()}")
        return
    yield expect("interventions.calibration", judged, summary.text())


def checks() -> list[Check]:
    # The last one measures nothing: it needs no device time.
    return [*(GROUP.check(name, judge, CREDIT) for name in INTERVENTIONS), Check("interventions.calibration", calibration, credit=-1e9)]
