"""A program in which no capture has begun runs at full speed, and the cost of each part of the waiting.

Runs alternate within a round, in an order that changes from round to round. A figure is the ratio of the medians of the
faster halves of the runs: other activity on the host only makes a run slower, and on a noisy host the ratios within a
round lay between 0.91 and 1.15 of each other. These ratios are printed after the figure. The parts are measured without
gpuwhy, by a library that does nothing else (workloads/waiting.cpp): its figures are printed and never fail.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator

from harness import Check, Mode, Result, Run, Suite, expect, skipped

ROUNDS = 9
# Maximum cost of waiting for a capture. Neither the subscriber alone nor a timer of 0.1 s could be distinguished from
# noise (docs/design/overhead.md), so this is the noise.
LIMIT = 1.03
# How libprof.so waits for a call of the program, and for a command.
WAITS = {
    "profiler": {"GPUWHY_CAPTURE_RANGE": "cudaProfilerApi"},
    "command": {"GPUWHY_CAPTURE_RANGE": "nvtx", "GPUWHY_NVTX_CAPTURE": "never"},
}
PARTS = (
    "subscribe", "subscribe,profiler", "door", "descriptions", "links", "thread", "subscribe,profiler,door",
    "subscribe,profiler,door,descriptions,thread",
)


class NoFigure(Exception):
    """A run that failed or printed no time."""


def figure(run: Run, pattern: str) -> float:
    match = re.search(pattern, run.stdout)
    if run.code != 0 or not match:
        raise NoFigure(f"{run.ending()}: {run.stderr.strip()[-150:]}")
    return float(match[1])


def compare(suite: Suite, name: str, command: list, pattern: str, variants: dict[str, tuple[Mode, dict]]) -> dict[str, list[float]]:
    """The times of the bare program and of each variant, by round.

    Raises NoFigure if a run has none.
    """
    everything = {"bare": (Mode.BARE, {}), **variants}
    found: dict[str, list[float]] = {variant: [] for variant in everything}
    for number in range(ROUNDS):
        # A different one comes first in each round, so that none always follows the same other one.
        turn = number % len(everything)
        order = [*everything][turn:] + [*everything][:turn]
        times = {}
        for variant in order:
            mode, extra = everything[variant]
            run = suite.run(f"waiting-{name}-{variant.replace(',', '+')}-{number}", command, mode, extra)
            times[variant] = figure(run, pattern)
            if run.traces():
                raise NoFigure(f"{variant}: a trace was left though nothing was captured")
        for variant, time in times.items():
            found[variant].append(time)
    return found


def quick(times: list[float]) -> float:
    """The median of the faster half."""
    return statistics.median(sorted(times)[:(len(times) + 1) // 2])


def said(times: list[float], bare: list[float], unit: str) -> str:
    ratios = [time / base for time, base in zip(times, bare)]
    return (f"{quick(times) / quick(bare):.3f} of bare (rounds {min(ratios):.3f} .. {max(ratios):.3f}, {len(ratios)} of them; "
            f"bare {quick(bare):.4g} {unit})")


def launches(suite: Suite) -> tuple[list, str, str]:
    return [str(suite.microbench), "launch", "100000"], r"time_per_operation_ns=([\d.]+)", "ns/kernel"


def waiting(suite: Suite) -> Iterator[Result]:
    """libprof.so in a program in which no capture begins."""
    programs = {
        "mlp": (suite.python("train.py", "mlp", "--steps", "300"), r'"ms_per_step": ([\d.]+)', "ms/step"),
        "launch": launches(suite),
    }
    variants = {wait: (Mode.VARIABLE, extra) for wait, extra in WAITS.items()}
    for name, (command, pattern, unit) in programs.items():
        try:
            found = compare(suite, name, command, pattern, variants)
        except NoFigure as error:
            yield expect(f"waiting.{name}", False, str(error))
            continue
        for wait in WAITS:
            ratio = quick(found[wait]) / quick(found["bare"])
            yield expect(f"waiting.{name}.{wait}", ratio <= LIMIT, said(found[wait], found["bare"], unit))


def parts(suite: Suite) -> Iterator[Result]:
    """Cost of each part of the waiting for an empty launch."""
    try:
        library = suite.compile_injection(suite.workloads / "waiting.cpp")
    except FileNotFoundError as error:
        yield skipped("waiting.parts", str(error))
        return
    command, pattern, unit = launches(suite)
    injected = {"CUDA_INJECTION64_PATH": str(library)}
    variants = {part: (Mode.BARE, {**injected, "WAITING_PARTS": part}) for part in ("none", *PARTS)}
    found = compare(suite, "parts", command, pattern, variants)
    for part in variants:
        yield expect(f"waiting.parts.{part}", True, said(found[part], found["bare"], unit))


def checks() -> list[Check]:
    return [Check("waiting.waiting", waiting), Check("waiting.parts", parts)]
