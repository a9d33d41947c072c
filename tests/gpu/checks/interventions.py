"""A verdict is right if acting on it makes the program faster: each lesson is run before and after its own fix.

The gain is real: both runs are without gpuprof, and the programs print their own rate. The verdict is that of the program
before the fix, traced. Where the report carries what-if figures they are printed beside the gain; they are ceilings, so
nothing is demanded of them here.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Iterator

from checks.verdicts import EXAMPLES
from harness import Check, Mode, Result, Run, Suite, expect
from trace_report import Trace, single

# Speed-up from which a fix counts as one: above what two runs of the same program differ by (a few per cent).
REAL_GAIN = 1.10
# Length of the measured loop, seconds.
SECONDS = "1.5"


@dataclasses.dataclass(frozen=True)
class Intervention:
    """A lesson, the option that applies its fix, and the verdict whose advice that fix is."""

    script: str
    fix: tuple[str, ...]
    group: str


INTERVENTIONS: dict[str, Intervention] = {
    # Enough workers that data are ready, where there are cores for them: that is what the ceiling is about.
    "loader_workers": Intervention(
        "01_data_loading.py", ("--workers", str(max(4, (os.cpu_count() or 4) - 4))), "data_loading"),
    "item_every_50": Intervention("02_sync_item.py", ("--every", "50"), "sync"),
    "pinned_copies": Intervention("03_pageable_copies.py", ("--pinned",), "copy"),
    "cuda_graph": Intervention("04_launch_bound.py", ("--graph",), "launch"),
    "allocator_cache": Intervention("07_allocator.py", ("--keep",), "allocator"),
    "batched_grids": Intervention("08_small_grids.py", ("--batched",), "gpu_compute"),
}


def rate(run: Run) -> float:
    """Steps per second as the program printed them; 0 when it did not."""
    match = re.search(r"([\d.]+) steps/s", run.stdout)
    return float(match[1]) if match else 0.0


def predictions(trace: Trace) -> str:
    """The what-if scenarios of the report in words; empty when it has none."""
    found = []
    for device in trace.report["devices"]:
        for scenario in (device.get("what_if") or {}).get("scenarios", []):
            if isinstance(scenario.get("speedup"), (int, float)):
                found.append(f"{scenario.get('kind')} {scenario['speedup']:.2f}x")
    return "; predicted ceilings: " + ", ".join(found) if found else ""


def one_intervention(name: str) -> Check:
    case = INTERVENTIONS[name]

    def check(suite: Suite) -> Iterator[Result]:
        prefix = f"interventions.{name}"
        command = [sys.executable, str(EXAMPLES / case.script), "--seconds", SECONDS]
        before = rate(suite.bare(f"{name}-before", command))
        after = rate(suite.bare(f"{name}-after", [*command, *case.fix]))
        traced = suite.run(f"{name}-traced", command, Mode.VARIABLE)
        trace = single(suite, traced)
        gain = after / before if before else 0.0
        fix = " ".join(case.fix)
        yield expect(
            f"{prefix}.gain", gain >= REAL_GAIN,
            f"{fix}: {before:.1f} to {after:.1f} steps/s, {gain:.2f}x{predictions(trace)}")
        yield expect(f"{prefix}.verdict", trace.verdict == case.group, f"expected {case.group}, got {trace.verdict_line()}")

    return Check(f"interventions.{name}", check)


def checks() -> list[Check]:
    return [one_intervention(name) for name in INTERVENTIONS]
