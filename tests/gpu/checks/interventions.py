"""A verdict is right if acting on it makes the program faster: each lesson is run before and after its own fix.

The gain is real: both runs are without gpuwhy, and the programs print their own rate. The verdict is that of the program
before the fix, traced. The what-if figures of its report are printed beside the gain. Where the fix does just what one of
them is about, that one predicts a rate: the steps per second that the traced run printed itself, times the ceiling. It must
be within 10 % of the rate after the fix. Not the gains are compared, because the rate of another run before the fix may be
30 % off: the host of a rented machine wobbles that much where it does the work (pageable copies: 110.4 and 83.7 steps/s
bare, 102.4 and 106.9 traced, one after the other), while a run's report is about just that run. After the fix the middle
one of three runs counts.
"""

from __future__ import annotations

import dataclasses
import os
import re
import statistics
import sys
from collections.abc import Iterator

from checks.verdicts import EXAMPLES
from harness import Check, Mode, Result, Run, Suite, expect
from trace_report import Trace, single

# Speed-up from which a fix counts as one: above what two runs of the same program differ by (a few per cent).
REAL_GAIN = 1.10
# How far the predicted rate may be from the rate after the fix, as a part of it.
WHAT_IF_ERROR = 0.10
# Length of the measured loop, seconds.
SECONDS = "1.5"
# Runs after the fix, of which the middle one counts.
RUNS_AFTER = 3


@dataclasses.dataclass(frozen=True)
class Intervention:
    """A lesson, the option that applies its fix, the verdict whose advice that fix is, its what-if scenario, and the options
    that it has before the fix and after."""

    script: str
    fix: tuple[str, ...]
    group: str
    scenario: str | None = None
    options: tuple[str, ...] = ()


INTERVENTIONS: dict[str, Intervention] = {
    # Workers bring what they can make ready; what the ceiling is about is data that are ready at once. It is known to be too
    # low where hardly anything of the step is left then (docs/design/attribution.md), so the device is given something to do.
    "loader_workers": Intervention(
        "01_data_loading.py", ("--workers", str(max(4, (os.cpu_count() or 4) - 4))), "data_loading"),
    "loader_ready": Intervention("01_data_loading.py", ("--ready",), "data_loading", "data_ready", ("--layers", "12")),
    "item_every_50": Intervention("02_sync_item.py", ("--every", "50"), "sync", "no_syncs"),
    "pinned_copies": Intervention("03_pageable_copies.py", ("--pinned",), "copy", "copies_overlapped"),
    "cuda_graph": Intervention("04_launch_bound.py", ("--graph",), "launch", "launches_free"),
    "allocator_cache": Intervention("07_allocator.py", ("--keep",), "allocator", "no_allocations"),
    # Rows that stay in the second-level cache: how much memory the blocks of one kernel share is in no record.
    "batched_grids": Intervention(
        "08_small_grids.py", ("--batched",), "gpu_compute", "grids_filled",
        ("--double", "--rows", "16", "--columns", "65536")),
}


def rate(run: Run) -> float:
    """Steps per second as the program printed them; 0 when it did not."""
    match = re.search(r"([\d.]+) steps/s", run.stdout)
    return float(match[1]) if match else 0.0


def predictions(trace: Trace) -> dict[str, float]:
    """The what-if scenarios of the report, by name; empty when it has none."""
    found = {}
    for device in trace.report["devices"]:
        for scenario in (device.get("what_if") or {}).get("scenarios", []):
            if isinstance(scenario.get("speedup"), (int, float)):
                found[scenario["kind"]] = scenario["speedup"]
    return found


def one_intervention(name: str) -> Check:
    case = INTERVENTIONS[name]

    def check(suite: Suite) -> Iterator[Result]:
        prefix = f"interventions.{name}"
        command = [sys.executable, str(EXAMPLES / case.script), "--seconds", SECONDS, *case.options]
        before = rate(suite.bare(f"{name}-before", command))
        fixed = [*command, *case.fix]
        after = statistics.median(rate(suite.bare(f"{name}-after-{run}", fixed)) for run in range(RUNS_AFTER))
        traced = suite.run(f"{name}-traced", command, Mode.VARIABLE)
        trace = single(suite, traced)
        gain = after / before if before else 0.0
        fix = " ".join(case.fix)
        predicted = predictions(trace)
        words = ", ".join(f"{kind} {speedup:.2f}x" for kind, speedup in predicted.items()) or "none"
        yield expect(
            f"{prefix}.gain", gain >= REAL_GAIN,
            f"{fix}: {before:.1f} to {after:.1f} steps/s, {gain:.2f}x; predicted ceilings: {words}")
        if case.scenario and after:
            ceiling, real = predicted.get(case.scenario, 0.0), rate(traced)
            error = real * ceiling / after - 1
            yield expect(
                f"{prefix}.what_if", abs(error) <= WHAT_IF_ERROR,
                f"{case.scenario} {ceiling:.2f}x of {real:.1f} steps/s traced: {real * ceiling:.1f} steps/s predicted, "
                f"{after:.1f} after the fix: {error:+.1%}")
        yield expect(f"{prefix}.verdict", trace.verdict == case.group, f"expected {case.group}, got {trace.verdict_line()}")

    return Check(f"interventions.{name}", check)


def checks() -> list[Check]:
    return [one_intervention(name) for name in INTERVENTIONS]
