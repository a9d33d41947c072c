"""`gpuwhy try` with programs of all kinds: changes whose direction is known, the cost of recording measured twice, and
fixes measured by `--against` beside turns by hand.
"""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator

from harness import Check, Result, Run, Suite, expect, skipped
from intervention_table import FIXES

NOT_INSTALLED = 77
BLOCKING = "CUDA_LAUNCH_BLOCKING=1"
# Pairs of runs, and steps of each.
FEW = ("--pairs", "2", "--steps", "20")
# Longest `gpuwhy try` around one program, seconds: its budget, and the end of the last run.
BUDGET = 100
LIMIT = BUDGET + 30.0
# Turns by hand, with and without the fix.
TURNS = 3
# Steps by loops need sys.monitoring; without it, the first of these units that the program has.
HAS_LOOPS = sys.version_info >= (3, 12)
WHOLE = ("run", "recorded", "work")


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, and what a step of it may be."""

    command: Callable[[Suite], list[str]]
    units: tuple[str, ...]
    # A variable that makes no program faster.
    variable: str = BLOCKING


def framework(name: str) -> Callable[[Suite], list[str]]:
    return lambda suite: suite.python("frameworks/programs.py", name, "--repeat", "3")


def fix(name: str, *arguments: str) -> Callable[[Suite], list[str]]:
    return lambda suite: [sys.executable, str(FIXES), "--program", name, *arguments]


def loop(*others: str) -> tuple[str, ...]:
    """Units of a program whose steps are passes of a loop of its own."""
    return ("loop",) if HAS_LOOPS else (*others, *WHOLE)


PROGRAMS = {
    "jax": Program(framework("jax.plain"), loop()),
    "cupy": Program(framework("array.cupy"), loop()),
    "triton": Program(framework("torch.triton"), loop()),
    "hf_trainer": Program(framework("hub.trainer"), ("optimizer",)),
    "lightning": Program(framework("hub.lightning"), ("optimizer",)),
    "compiled": Program(framework("torch.compile"), ("optimizer",)),
    "fixed_length": Program(lambda suite: suite.python("train.py", "mlp", "--steps", "100"), ("optimizer",)),
    "server": Program(fix("arriving_requests", "--seconds", "4"), loop("module")),
    "writes_files": Program(fix("flushed_log", "--seconds", "4"), loop("module")),
    # It checks its own bottleneck, which the other variable changes.
    "rust": Program(lambda suite: [str(suite.gpuwhy.parent / "examples" / "01_first_session")], WHOLE, "OMP_NUM_THREADS=1"),
}
# Programs whose cost is measured twice.
COSTS = {
    "gpt": lambda suite: suite.python("train.py", "gpt", "--steps", "40"),
    "tiny_kernels": lambda suite: [str(suite.microbench), "launch", "100000"],
    # A decode step is one graph, and requests are batched: a server.
    "graph_server": lambda suite: suite.python("graph_server.py"),
}
# Programs before and after a fix, and the steps of a run.
AGAINST = {"item_each_layer": 300, "pageable_1": 2000}


def run(suite: Suite, name: str, options: list[str], command: list[str]) -> Run:
    words = [str(suite.gpuwhy), "try", "--json", "--budget", f"{BUDGET}s", *options, "--", *command]
    return suite.run(f"try-{name}", words, limit=LIMIT)


def document(printed: str) -> dict:
    """The answer; empty if there is none."""
    try:
        found = json.loads(printed)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def why(run: Run) -> str:
    lines = run.stderr.strip().splitlines()
    return f"{run.ending()}: {lines[-1][:300] if lines else ''}"


def is_absent(run: Run) -> bool:
    """True if a library of the program or the program is missing."""
    return run.code in (NOT_INSTALLED, 126, 127)


def changed(name: str) -> Check:
    program, title = PROGRAMS[name], f"try.env.{name}"

    def check(suite: Suite) -> Iterator[Result]:
        done = run(suite, name, [*FEW, "--env", program.variable], program.command(suite))
        if is_absent(done):
            yield skipped(title, why(done))
            return
        yield from judged(title, program, document(done.stdout), why(done))

    return Check(title, check, exclusive=False, credit=60.0)


def judged(title: str, program: Program, found: dict, ending: str) -> Iterator[Result]:
    """The lines about an answer."""
    row = (found.get("remedies") or [{}])[0]
    text = f"{program.variable}: {row.get('outcome')} {row.get('gain')} ({row.get('low')} to {row.get('high')}); {ending}"
    yield expect(f"{title}.direction", row.get("outcome") in ("slower", "no_difference") and row.get("gain") is not None, text)
    unit = found.get("unit")
    yield expect(f"{title}.unit", unit in program.units, f"expected {' or '.join(program.units)}, got {unit} {found.get('unit_at') or ''}")


def overlap(one: dict, other: dict) -> bool:
    return one["low"] <= other["high"] and other["low"] <= one["high"]


def cost(name: str) -> Check:
    title = f"try.cost.{name}"

    def check(suite: Suite) -> Iterator[Result]:
        runs = [run(suite, f"cost-{name}-{turn}", ["--cost=light", *FEW], COSTS[name](suite)) for turn in range(2)]
        if any(map(is_absent, runs)):
            yield skipped(title, why(runs[0]))
            return
        both = [(document(one.stdout).get("modes") or [{}])[0] for one in runs]
        text = " and ".join(
            f"{mode['cost']:.1%} ({mode['low']:.1%} to {mode['high']:.1%})" if mode.get("cost") is not None else why(one)
            for mode, one in zip(both, runs))
        suite.record("own_cost", {"name": name, "modes": both})
        yield expect(title, all(mode.get("cost") is not None for mode in both) and overlap(*both), text)

    return Check(title, check, credit=60.0)


def rate(run: Run) -> float | None:
    said = re.search(r"([\d.]+) steps/s", run.stdout)
    return float(said[1]) if said and run.code == 0 else None


def by_hand(suite: Suite, name: str, commands: list[list[str]]) -> dict | None:
    """The gain of turns by hand, with the range of its pairs."""
    gains = []
    for turn in range(TURNS):
        order = commands if turn % 2 == 0 else commands[::-1]
        rates = {" ".join(command): rate(suite.run(f"hand-{name}", command)) for command in order}
        before, after = (rates[" ".join(command)] for command in commands)
        if not before or not after:
            return None
        gains.append(after / before)
    return {"gain": statistics.median(gains), "low": min(gains), "high": max(gains)}


def against(name: str) -> Check:
    title = f"try.against.{name}"

    def check(suite: Suite) -> Iterator[Result]:
        before = fix(name, "--steps", str(AGAINST[name]))(suite)
        after = [*before, "--fixed"]
        hand = by_hand(suite, name, [before, after])
        done = run(suite, f"against-{name}", [*FEW, "--allow", "all", "--against", " ".join(after)], before)
        found = document(done.stdout)
        row = (found.get("remedies") or [{}])[0]
        if found.get("unit") in WHOLE:
            yield skipped(title, f"its steps are not counted by Python {sys.version_info[0]}.{sys.version_info[1]}")
            return
        if hand is None or row.get("gain") is None:
            yield expect(title, False, f"by hand {hand}, from outside {row.get('outcome')} {row.get('why')}; {why(done)}")
            return
        suite.record("against", {"name": name, "hand": hand, "tried": row})
        yield expect(
            title, overlap(hand, row), f"{hand['gain']:.2f}x ({hand['low']:.2f} to {hand['high']:.2f}) by hand, by gpuwhy try "
            f"{row['gain']:.2f}x ({row['low']:.2f} to {row['high']:.2f}), unit {found.get('unit')}")

    return Check(title, check, credit=60.0)


def checks() -> list[Check]:
    return [*map(changed, PROGRAMS), *map(cost, COSTS), *map(against, AGAINST)]
