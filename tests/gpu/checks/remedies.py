"""Whether the report says the right change, and what it would bring: programs before and after a known fix.

As in checks/causes.py the gain is measured without gpuwhy, and the report is that of the traced program before the fix.
Its first three remedies must have the one that says the fix, the first one must not be nonsense, and the gain must be in
the interval of the right one. Programs without a fix must not get remedies that would be nonsense for them.

`remedies.try.P` lets `gpuwhy try` make the same change from outside, and compares its gain with that by hand.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import remedy_gains
from cause_table import marked_lines, names_line
from checks.causes import WARM, after_the_fix
from checks.interventions import measured, rate, runs
from checks.interventions import row as gain_row
from harness import Check, Mode, Result, Run, Suite, expect, skipped
from intervention_table import FIXES
from prepared import Failed, Group, Missing, Plan, Prepared, finish_all
from remedy_gains import Answer
from remedy_table import OUTSIDE, REMEDIES, SHOWN, TRIED, Remedy
from trace_report import Trace, largest

# Programs that are started together.
SIZE = 14
# Time needed by a program that has to start its group, seconds.
CREDIT = 30.0
# Pairs of runs of `gpuwhy try`, and the length of a run of its program, which ends by itself. As many pairs by hand run
# in between.
PAIRS, TRY_SECONDS = 5, 0.6
# Time for each of `gpuwhy try`, seconds: their programs load at the same time and take turns, so all of them together have
# the sum. Each is given more, because it counts the time in which its program waits.
TRY_LIMIT, TRY_BUDGET = 25.0, "900s"


def plans(suite: Suite, name: str) -> dict[str, Plan]:
    found = runs(REMEDIES[name], *WARM)
    return {"traced": found["traced"]} if REMEDIES[name].is_control else found


@functools.cache
def lines() -> dict[str, list[str]]:
    return marked_lines()


def row(name: str, case: Remedy, rates: dict[str, list[float]], trace: Trace) -> dict:
    """The line of measured.jsonl."""
    if case.is_control:
        both: dict = {
            "bare_before": [], "bare_after": [], "traced": rates["traced"][0], "bottleneck": trace.bottleneck,
            "evidence": trace.evidence, "advice": trace.advice, "plan": trace.plan()}
        return remedy_gains.row(name, case, both, trace.remedies())
    found = remedy_gains.row(name, case, gain_row(name, case, rates, trace), trace.remedies())
    own = lines().get(name)
    at = next((f"{one['at']} {one['text']}" for one in found["remedies"] if one["id"] == found["scenario"]), "")
    return {**found, **after_the_fix(found), "at_named": names_line(at, own) if own and at else None}


def said(found: dict) -> str:
    """The remedies of a report, in words."""
    return ", ".join(
        one["id"] + (f" {one['speedup']:.2f}x" if one["speedup"] else "") for one in found["remedies"]) or "no remedies"


def judged(prefix: str, case: Remedy, found: dict) -> Iterator[Result]:
    """The lines about a row of measured.jsonl."""
    one: Answer = remedy_gains.answer(found)
    text = f"{said(found)}; bottleneck {found['bottleneck']}"
    if case.is_control:
        yield expect(f"{prefix}.silent", not one.nonsense, f"expected none of these: {', '.join(one.nonsense) or 'none'}; got {text}")
        return
    gain = one.gain
    assert gain is not None
    yield expect(
        f"{prefix}.gain", case.least_gain is None or gain.real >= case.least_gain,
        f"{case.fix}: {gain.real:.2f}x ({gain.real_low:.2f} to {gain.real_high:.2f})")
    where = {True: ", line named", False: ", line not named", None: ""}[one.line_named]
    yield expect(f"{prefix}.said", one.is_found, f"expected {' or '.join(case.right)} among the first {SHOWN}, got {text}{where}")
    yield expect(f"{prefix}.first", not one.nonsense, f"must not be the first: {', '.join(one.nonsense) or 'none'}; got {text}")
    if one.reached is not None:
        scatter = "" if one.inside or not one.reached else ", inside with the scatter of the turns"
        yield expect(
            f"{prefix}.interval", one.reached,
            f"{one.chosen} predicted {gain.predicted or 0:.2f}x ({gain.low:.2f} to {gain.high:.2f}), real {gain.real:.2f}x "
            f"({gain.real_low:.2f} to {gain.real_high:.2f}){scatter}")


def judge(suite: Suite, name: str, programs: dict[str, Prepared]) -> Iterator[Result]:
    case, prefix = REMEDIES[name], f"remedies.{name}"
    both = yield from measured(suite, prefix, name, case, programs, largest)
    if both is None:
        return
    trace, rates = both
    found = row(name, case, rates, trace)
    suite.record("remedy", found)
    yield from judged(prefix, case, found)


GROUP = Group("remedies", plans, list(REMEDIES), SIZE)


def by_hand(suite: Suite, name: str) -> dict[str, Plan]:
    case = OUTSIDE[name]
    found = runs(case, *WARM, "--turn", str(turns(suite)), "--loaded")
    return {role: found[role] for role in ("before", "after")}


def turns(suite: Suite) -> pathlib.Path:
    """The file by which programs take turns; see `fixes.turn`."""
    return suite.scratch / "turn"


HAND = Group("remedies.try", by_hand, TRIED, len(TRIED))


def command(suite: Suite, name: str, turn: pathlib.Path) -> list[str]:
    """`gpuwhy try` around a program. All of these programs load their libraries at the same time; each then waits until it
    has the device to itself."""
    remedy = OUTSIDE[name].outside
    assert remedy is not None
    return [
        str(suite.gpuwhy), "try", "--remedy", remedy, "--pairs", str(PAIRS), "--json", "--allow", "all", "--budget", TRY_BUDGET, "--",
        sys.executable, str(FIXES), "--program", name, "--seconds", f"{TRY_SECONDS:g}", "--warm", "0.1", "--turn", str(turn)]


def tried(printed: str, remedy: str) -> dict:
    """The gain that `gpuwhy try` printed, with its interval; `why` if there is none."""
    nothing = {"tried": None, "tried_low": None, "tried_high": None}
    try:
        rows = json.loads(printed)["remedies"]
    except (ValueError, KeyError, TypeError):
        return {**nothing, "why": "no answer"}
    found = next((one for one in rows if one.get("id") == remedy), {})
    if not found.get("gain"):
        return {**nothing, "why": ": ".join(filter(None, (found.get("outcome"), found.get("why")))) or "not tried"}
    return {"tried": found["gain"], "tried_low": found.get("low"), "tried_high": found.get("high"), "why": None}


class Tries:
    """The programs of all chosen checks, from outside, and by hand in between: a host that becomes slower affects both."""

    def __init__(self) -> None:
        self.rates: dict[str, dict[str, list[float]]] = {}
        self.errors: dict[str, Exception] = {}
        self.runs: dict[str, Run] = {}

    def measure(self, suite: Suite) -> None:
        """Measures all of them, once."""
        if self.rates or self.errors:
            return
        names = [name for name in TRIED if f"remedies.try.{name}" in suite.selected]
        ready: dict[str, dict[str, Prepared]] = {}
        for name in names:
            try:
                ready[name] = HAND.take(suite, name)
            except (Missing, Failed) as error:
                self.errors[name] = error
        turn, began = turns(suite), time.monotonic()
        turn.touch()
        started: dict[str, tuple[subprocess.Popen, pathlib.Path]] = {
            name: suite.start(f"try-{name}", command(suite, name, turn), Mode.BARE) for name in ready}
        try:
            for number in range(PAIRS):
                self.wait(turn, 2 * number * len(ready), [process for process, _ in started.values()])
                for name in ready:
                    self.hand(name, ready[name], number)
            for name, (process, folder) in started.items():
                self.runs[name] = suite.finish(process, folder, began, TRY_LIMIT * len(started))
        finally:
            for process, _ in started.values():
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
            for programs in ready.values():
                finish_all(programs.values())

    @staticmethod
    def wait(turn: pathlib.Path, many: int, tries: list[subprocess.Popen]) -> None:
        """Waits until this many runs of `gpuwhy try` had their turn: a pair by hand is near each pair from outside."""
        while turn.stat().st_size < many and any(process.poll() is None for process in tries):
            time.sleep(0.05)

    def hand(self, name: str, programs: dict[str, Prepared], number: int) -> None:
        """A pair of runs by hand: without, with, and then with, without."""
        roles = list(programs)
        if name in self.errors:
            return
        found = self.rates.setdefault(name, {role: [] for role in roles})
        try:
            for role in roles if number % 2 == 0 else roles[::-1]:
                found[role].append(rate(programs[role].turn()))
        except Failed as error:
            self.errors[name] = error


TRIES = Tries()


def from_outside(name: str) -> Check:
    """The check that `gpuwhy try` finds the gain of the change by hand."""
    title = f"remedies.try.{name}"

    def check(suite: Suite) -> Iterator[Result]:
        TRIES.measure(suite)
        if name in TRIES.errors:
            error = TRIES.errors[name]
            yield skipped(title, str(error)) if isinstance(error, Missing) else expect(title, False, str(error))
            return
        if name not in TRIES.runs:
            yield skipped(title, "the time was up before it ran")
            return
        rates, run = TRIES.rates[name], TRIES.runs[name]
        if not all(value > 0 for values in rates.values() for value in values):
            yield expect(title, False, f"a program printed no rate: {rates}")
            return
        case = OUTSIDE[name]
        remedy = case.outside or ""
        found = {
            "name": name, "fix": case.fix, "held_out": case.held_out, "remedy": remedy, "bare_before": rates["before"],
            "bare_after": rates["after"], **tried(run.stdout, remedy)}
        suite.record("tried", found)
        apart = remedy_gains.difference(found)
        hand = remedy_gains.by_hand(found)
        low, high = remedy_gains.hand_interval(found)
        error = run.stderr.strip().splitlines()[-1:] if apart is None else []
        got = f"{found['why']}; {run.ending()} {' '.join(error)}"
        if apart is not None:
            both = "intervals overlap" if remedy_gains.overlap(found) else "intervals apart"
            got = f"{found['tried']:.2f}x ({found['tried_low']:.2f} to {found['tried_high']:.2f}), {apart:+.1%}, {both}"
        yield expect(
            title, apart is not None and abs(apart) <= remedy_gains.SAME,
            f"{remedy}: {hand:.2f}x ({low:.2f} to {high:.2f}) by hand, from outside {got}")

    # The first one measures all of them.
    return Check(title, check, credit=60.0)


def summary(suite: Suite) -> Iterator[Result]:
    """Sums up both halves; the tables are in remedies.md. A measurement, not a promise."""
    rows, outside = suite.recorded("remedy"), suite.recorded("tried")
    if not rows and not outside:
        yield skipped("remedies.summary", "no program was measured")
        return
    found = remedy_gains.answers(rows)
    parts = remedy_gains.tables([{"kind": "remedy", **one} for one in rows] + [{"kind": "tried", **one} for one in outside])
    (suite.out / "remedies.md").write_text("\n".join(parts.values()))
    for half, members in remedy_gains.halves(found).items():
        print(f"{half}: {remedy_gains.summary(members)}", flush=True)
    yield expect("remedies.summary", True, remedy_gains.summary(found))


def checks() -> list[Check]:
    # The last one measures nothing: it needs no device time.
    return [
        *(GROUP.check(name, judge, CREDIT) for name in REMEDIES), *(from_outside(name) for name in TRIED),
        Check("remedies.summary", summary, credit=-1e9)]
