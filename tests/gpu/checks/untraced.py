"""The report's prediction of a step without tracing agrees with the program's step without it.

One bare process and five traced ones of each program alternate, a second each. The median of the five predictions is
compared with the median of the five bare runs. The overheads per call are those that `gpuwhy doctor --calibrate`
measured when the suite began.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from checks.interventions import rate
from harness import Check, Mode, Result, Suite, expect, skipped
from intervention_table import EXAMPLES, FIXES
from prepared import Failed, Group, Plan, Prepared, finish_all
from trace_report import Trace, single

ROUNDS = 5
# Maximum error of the predicted step, as a part of the measured one.
TOLERANCE = 0.03
# Length of one run, seconds.
SECONDS = ("--seconds", "1.0")
# Programs that are started together, with six processes each.
SIZE = 4
CREDIT = 45.0

# Name -> script and arguments.
PROGRAMS = {
    "launch": (EXAMPLES / "04_launch_bound.py", ()),
    "tiny_kernels": (FIXES, ("--program", "rnn_tiny")),
    "graph": (FIXES, ("--program", "decode", "--fixed")),
    "many_copies": (FIXES, ("--program", "copies_400")),
    "pageable_copies": (FIXES, ("--program", "pageable_1")),
    "readbacks": (FIXES, ("--program", "item_each_layer")),
    "gpu_bound": (FIXES, ("--program", "bf16")),
    "training": (FIXES, ("--program", "print_loss", "--fixed")),
}


def plans(suite: Suite, name: str) -> dict[str, Plan]:
    script, arguments = PROGRAMS[name]
    command = (*arguments, *SECONDS)
    traced = {f"traced-{number}": Plan(script, command, "torch", Mode.VARIABLE) for number in range(ROUNDS)}
    return {"bare": Plan(script, command, "torch", rehearse="--seconds 0.05"), **traced}


def rounds(suite: Suite, programs: dict[str, Prepared]) -> tuple[list[float], list[tuple[float, Trace]]]:
    """The bare steps, and the traced ones with their reports; nanoseconds.

    Raises Failed if a program prints no rate, or a traced one fails.
    """
    bare, traced = [], []
    for number in range(ROUNDS):
        program = programs[f"traced-{number}"]
        rates = rate(programs["bare"].turn()), rate(program.turn())
        run = program.finish()
        if min(rates) <= 0 or run.code != 0:
            raise Failed(f"{run.ending()}, rates {rates}")
        bare.append(1e9 / rates[0])
        traced.append((1e9 / rates[1], single(suite, run)))
    return bare, traced


def compare(suite: Suite, name: str, programs: dict[str, Prepared]) -> Iterator[Result]:
    prefix = f"untraced.{name}"
    try:
        bare, traced = rounds(suite, programs)
    finally:
        finish_all(programs.values())
    found = [prediction for own, trace in traced if (prediction := trace.predicted_step(own)) is not None]
    measured, own = statistics.median(bare), statistics.median(own for own, _ in traced)
    predicted = statistics.median(found) if found else None
    suite.record("untraced", {
        "name": name, "bare_ns": measured, "traced_ns": own, "predicted_untraced_ns": predicted, "bare": bare,
        "traced": [own for own, _ in traced], "predictions": found, "untraced": [trace.untraced() for _, trace in traced],
        "bottlenecks": [trace.bottleneck for _, trace in traced]})
    text = f"bare {measured / 1e3:.1f} us, traced {own / 1e3:.1f} us ({own / measured - 1:+.1%})"
    if predicted is None:
        yield skipped(prefix, f"no report has a step without tracing; {text}")
        return
    error = predicted / measured - 1
    yield expect(prefix, abs(error) <= TOLERANCE,
                 f"{text}, predicted without tracing {predicted / 1e3:.1f} us ({error:+.1%}) by {len(found)} of {ROUNDS} reports")


GROUP = Group("untraced", plans, list(PROGRAMS), SIZE)


def checks() -> list[Check]:
    return [GROUP.check(name, compare, CREDIT) for name in PROGRAMS]
