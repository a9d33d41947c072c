"""Programs with a constructed bottleneck of known dose: the dosed cause changes by the dose, and no bottleneck is
wrong.

Each program of `examples/cuda/dose.cu` measures with its own clocks the cost of its dosed cause in a step. It runs at
two or three doses; from one to the next the leaves that it names must change by as much as its own measurement, within
2 % of the step. Differences are compared rather than totals because a leaf also contains time that is there at every
dose (the latency of a launch, the wake-up of a thread); totals are in the table. Both figures come from the same traced
run, so both include the overhead of tracing.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import pathlib
from collections.abc import Iterator, Sequence

from harness import REPOSITORY, Check, Mode, Result, Run, Suite, expect
from trace_report import Trace, Unreadable, single

# Maximum error of a change, as a part of the longer of the two steps.
TOLERANCE = 0.02
# Share of a cause from which gpuwhy names it before computation, and unresolved share from which it names none
# (docs/reference/report.md, Bottleneck).
WORTH_SHARE, UNKNOWN_SHARE = 0.15, 0.20
# Length of one run, seconds.
SECONDS = "0.6"

# Program -> doses. Their shares stay away from these limits, so that the right bottleneck never depends on noise.
DOSES: dict[str, tuple[float, ...]] = {
    "compute": (50, 100),
    "dispatch": (20, 40),
    "graph": (50, 200),
    "sleep": (2, 6, 8),
    "spin": (0.5, 2, 4),
    "item": (100, 400, 800),
    "end_sync": (500, 2000),
    "h2d_pageable": (8, 32),
    "h2d_pinned": (32, 128),
    "h2d_hidden": (32, 128),
    "small_copies": (200, 800),
    "malloc": (4, 12),
    "host_func": (0, 500, 2000),
    "event_wait": (500, 2000),
    "tail": (0, 1, 100),
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run: the program's measurement, and gpuwhy's result. Times are nanoseconds in one step."""

    dose: float
    unit: str
    leaves: list[str]
    step: float
    cost: float
    reported: float
    expected_bottleneck: str
    bottleneck: str
    all_leaves: dict[str, float]

    def line(self) -> str:
        others = sorted(self.all_leaves.items(), key=lambda item: -item[1])
        largest = ", ".join(f"{name} {value / self.step:.1%}" for name, value in others[:4] if value > 0)
        return (
            f"  {self.dose:>7g} {self.unit:<11} step {self.step / 1e3:9.1f} us   own clock {self.cost / 1e3:9.1f}   "
            f"gpuwhy {self.reported / 1e3:9.1f}   off by {(self.reported - self.cost) / self.step:+7.2%}   "
            f"{self.bottleneck} ({largest})")


def outcome(run: Run, trace: Trace) -> Outcome:
    """Puts the program's own line and the report side by side.

    Raises Unreadable if the program printed no line.
    """
    lines = run.stdout.strip().splitlines()
    if run.code != 0 or not lines:
        raise Unreadable(f"{pathlib.Path(run.command[0]).name} {run.ending()}: {run.stderr.strip()[-200:]}")
    own = json.loads(lines[-1])
    leaves = {name: value / own["steps"] for name, value in trace.steady_leaves().items()}
    limit = UNKNOWN_SHARE if own["group"] == "cannot_tell" else WORTH_SHARE
    is_worth_naming = own["cost_ns"] >= limit * own["step_ns"]
    return Outcome(
        own["dose"], own["unit"], own["leaves"], own["step_ns"], own["cost_ns"],
        sum(leaves.get(name, 0.0) for name in own["leaves"]), own["group"] if is_worth_naming else "gpu_compute",
        trace.bottleneck, leaves)


def compare_doses(program: str, outcomes: Sequence[Outcome]) -> Iterator[Result]:
    for low, high in itertools.pairwise(outcomes):
        constructed, reported = high.cost - low.cost, high.reported - low.reported
        error = (reported - constructed) / max(low.step, high.step)
        yield expect(
            f"truth.{program}.{low.dose:g}_to_{high.dose:g}", abs(error) <= TOLERANCE,
            f"{'+'.join(high.leaves)} changed by {reported / 1e3:.1f} us, by its own clock {constructed / 1e3:.1f}: "
            f"off by {error:+.2%} of the step")


def confusion(pairs: collections.Counter[tuple[str, str]]) -> str:
    """Right bottlenecks in rows, reported ones in columns."""
    causes = sorted({cause for pair in pairs for cause in pair})
    rows = [f"{'right / given':<14}" + "".join(f"{cause:>14}" for cause in causes)]
    rows += [f"{right:<14}" + "".join(f"{pairs[right, given] or '.':>14}" for given in causes) for right in causes]
    return "\n".join(rows)


def truth(suite: Suite) -> Iterator[Result]:
    dose = suite.scratch / "dose"
    try:
        built = suite.compile(REPOSITORY / "examples" / "cuda" / "dose.cu", dose)
    except FileNotFoundError as error:
        yield expect("truth.build", False, str(error))
        return
    yield expect("truth.build", built.code == 0, built.ending() if built.code == 0 else built.stderr.strip()[-300:])
    if built.code != 0:
        return

    bottlenecks: collections.Counter[tuple[str, str]] = collections.Counter()
    for program, doses in DOSES.items():
        outcomes = []
        for amount in doses:
            command = [dose, program, "--dose", f"{amount:g}", "--seconds", SECONDS]
            run = suite.run(f"truth-{program}", command, Mode.VARIABLE)
            try:
                found = outcome(run, single(suite, run))
            except Unreadable as error:
                yield expect(f"truth.{program}.{amount:g}", False, str(error))
                continue
            outcomes.append(found)
            bottlenecks[found.expected_bottleneck, found.bottleneck] += 1
            yield expect(
                f"truth.{program}.{amount:g}.bottleneck", found.bottleneck == found.expected_bottleneck,
                f"expected {found.expected_bottleneck}, got {found.bottleneck}")
        print(f"{program}: {'+'.join(outcomes[0].leaves) if outcomes else ''}")
        print(*(found.line() for found in outcomes), sep="\n", flush=True)
        yield from compare_doses(program, outcomes)
    print(confusion(bottlenecks), flush=True)
    right = sum(count for (expected, given), count in bottlenecks.items() if expected == given)
    yield expect("truth.bottlenecks", right == bottlenecks.total() > 0, f"{right} of {bottlenecks.total()} right")


def checks() -> list[Check]:
    return [Check("truth", truth)]
