"""Whether the report leads to the cause: programs with a known one, before and after its fix.

As in checks/interventions.py the gain is measured without gpuwhy, and the report is that of the traced program before
the fix. Here it must also name the line that makes the program slow, or the words of a person who knows the cause, in
what a reader sees first: evidence and advice of the bottleneck, the first fix, and the host's first line.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator

import gains
from cause_table import CAUSES, marked_lines, names_line, names_words
from checks.interventions import compared, runs
from harness import Check, Result, Suite, expect, skipped
from intervention_table import Intervention
from prepared import Group, Plan, Prepared
from trace_report import Trace, largest

# Programs that are started together.
SIZE = 11
# Time needed by a program that has to start its group, seconds.
CREDIT = 30.0
# The bare programs have been rehearsed.
WARM = ("--warm", "0.1")


def plans(suite: Suite, name: str) -> dict[str, Plan]:
    return runs(CAUSES[name], *WARM)


@functools.cache
def lines() -> dict[str, list[str]]:
    return marked_lines()


def after_the_fix(found: dict) -> dict:
    """The step after the fix, predicted with its interval and measured, nanoseconds; None where the report has no
    prediction."""
    step, speedup, low, high = found["predicted_untraced_ns"] or found["traced_ns"], found["speedup"], found["low"], found["high"]
    after = statistics.median(found["bare_after"])
    return {
        "after_ns": 1e9 / after if after else None, "predicted_after_ns": step / speedup if step and speedup else None,
        "after_low_ns": step / high if step and high else None, "after_high_ns": step / low if step and low else None}


def named(name: str, case: Intervention, trace: Trace) -> dict:
    """What the answer names, and the answer."""
    answer, own = trace.answer(), lines().get(name, [])
    return {
        "cause_kind": case.kind, "lines": own, "words": case.names, "line_named": names_line(answer, own),
        "words_named": names_words(answer, case.names), "answer": answer}


def judge(suite: Suite, name: str, programs: dict[str, Prepared]) -> Iterator[Result]:
    case, prefix = CAUSES[name], f"causes.{name}"
    found = yield from compared(suite, prefix, name, case, programs, largest)
    if found is None:
        return
    trace, row = found
    row = {**row, **after_the_fix(row), **named(name, case, trace)}
    suite.record("cause", row)
    wanted = " or ".join(filter(None, [", ".join(row["lines"]), case.names]))
    first = trace.first_line()
    place = f"{first['file'].rsplit('/', 1)[-1]}:{first['line']} ({first['function']})" if first else "none"
    yield expect(
        f"{prefix}.named", row["line_named"] or row["words_named"],
        f"line {'named' if row['line_named'] else 'not named'}, words {'named' if row['words_named'] else 'not named'}: "
        f"expected {wanted}; first line of the host {place}; advice: {trace.advice}")


GROUP = Group("causes", plans, list(CAUSES), SIZE)


def summary(suite: Suite) -> Iterator[Result]:
    """Sums up both halves; the table is in causes.md. A measurement, not a promise."""
    rows = suite.recorded("cause")
    if not rows:
        yield skipped("causes.summary", "no program was measured")
        return
    found = gains.gains(rows)
    (suite.out / "causes.md").write_text(gains.causes_table(rows))
    for half, members in gains.halves(found).items():
        print(f"{half}: {gains.judge(members).text()}", flush=True)
    yield expect("causes.summary", True, gains.judge(found).text())


def checks() -> list[Check]:
    # The last one measures nothing: it needs no device time.
    return [*(GROUP.check(name, judge, CREDIT) for name in CAUSES), Check("causes.summary", summary, credit=-1e9)]
