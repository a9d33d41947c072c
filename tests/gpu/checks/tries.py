"""`gpuwhy try` with programs of all kinds: changes whose direction is known, the cost of recording measured twice, and
fixes measured by `--against` and `--patch` beside turns by hand.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import pathlib
import re
import shlex
import shutil
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
# What a variable certainly does. Each launch waits for its kernel: a step is longer where the CPU launches for most of it.
# Where something else decides how long a step is, it is the same. In between the size is not certain, and it is no gain.
SLOWER, SAME, NO_GAIN = "slower", "the same", "no gain"
# Distance from 1 at which a gain is none.
NEAR = 0.05


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, what a step of it may be, and what `variable` does to it."""

    command: Callable[[Suite], list[str]]
    units: tuple[str, ...]
    direction: str
    variable: str = BLOCKING


def framework(name: str) -> Callable[[Suite], list[str]]:
    return lambda suite: suite.python("frameworks/programs.py", name, "--repeat", "3")


def fix(name: str, *arguments: str) -> Callable[[Suite], list[str]]:
    return lambda suite: [sys.executable, str(FIXES), "--program", name, *arguments]


def loop(*others: str) -> tuple[str, ...]:
    """Units of a program whose steps are passes of a loop of its own."""
    return ("loop",) if HAS_LOOPS else (*others, *WHOLE)


PROGRAMS = {
    # The driver launches one graph a step: nothing says whether it waits.
    "jax": Program(framework("jax.plain"), loop(), NO_GAIN),
    # Eight kernels of some microseconds a step, on two streams. A start-up longer than the loop makes it no step.
    "cupy": Program(framework("array.cupy"), (*loop(), "recorded"), SLOWER),
    # Two kernels of 4 MB, between which Python works for longer than they do. As before, of the start-up.
    "triton": Program(framework("torch.triton"), (*loop(), "recorded"), SLOWER),
    # Hundreds of small kernels a step.
    "hf_trainer": Program(framework("hub.trainer"), ("optimizer",), SLOWER),
    # Lightning's own work takes most of a step.
    "lightning": Program(framework("hub.lightning"), ("optimizer",), NO_GAIN),
    "compiled": Program(framework("torch.compile"), ("optimizer",), NO_GAIN),
    # 280 kernels a step, each shorter than its launch.
    "fixed_length": Program(lambda suite: suite.python("train.py", "mlp", "--steps", "100"), ("optimizer",), SLOWER),
    # Requests arrive every 5 ms, and the answer takes a tenth of that.
    "server": Program(fix("arriving_requests", "--seconds", "4"), loop("module"), SAME),
    # The disk decides.
    "writes_files": Program(fix("flushed_log", "--seconds", "4"), loop("module"), NO_GAIN),
    # It checks its own bottleneck, which the other variable changes; OpenMP is not used.
    "rust": Program(
        lambda suite: [str(suite.gpuwhy.parent / "examples" / "01_first_session")], WHOLE, SAME, "OMP_NUM_THREADS=1"),
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


@dataclasses.dataclass(frozen=True)
class Patch:
    """A program in two files, the text that its fix replaces, and the steps of a run."""

    module: str
    before: str
    after: str
    steps: int


# A step is a call of the optimizer, with any Python. 200 parameters, one after the other or all in a few kernels.
PATCHES = {"adamax_loop": Patch("outside.py", "foreach=None if fixed else False", "foreach=None", 200)}


def run(suite: Suite, name: str, options: list[str], command: list[str], folder: pathlib.Path | None = None) -> Run:
    words = [str(suite.gpuwhy), "try", "--json", "--budget", f"{BUDGET}s", *options, "--", *command]
    return suite.run(f"try-{name}", within(folder, words) if folder else words, limit=LIMIT)


def within(folder: pathlib.Path, words: list[str]) -> list[str]:
    """The command in this working directory."""
    return ["sh", "-c", f"cd {shlex.quote(str(folder))} && exec {shlex.join(words)}"]


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

    # Other programs beside it would scatter its times.
    return Check(title, check, exclusive=program.direction == SLOWER, credit=60.0)


def judged(title: str, program: Program, found: dict, ending: str) -> Iterator[Result]:
    """The lines about an answer."""
    row, unit = (found.get("remedies") or [{}])[0], found.get("unit")
    # The start-up that is a part of whole runs is as long with it.
    direction = NO_GAIN if program.direction == SLOWER and unit in WHOLE else program.direction
    text = f"{row.get('outcome')} {row.get('gain')} ({row.get('low')} to {row.get('high')}); {ending}"
    yield expect(f"{title}.direction", is_as_certain(direction, row), f"{program.variable}: {direction} expected, got {text}")
    yield expect(f"{title}.unit", unit in program.units, f"expected {' or '.join(program.units)}, got {unit} {found.get('unit_at') or ''}")


def is_as_certain(direction: str, row: dict) -> bool:
    """True if an answer has an interval of that direction."""
    if None in (row.get("gain"), row.get("low"), row.get("high")):
        return False
    if direction == SLOWER:
        return row["outcome"] == "slower" and row["high"] < 1
    if row["outcome"] not in ("slower", "no_difference") or row["low"] > 1 + NEAR:
        return False
    return direction == NO_GAIN or overlap(row, {"low": 1 - NEAR, "high": 1 + NEAR})


def overlap(one: dict, other: dict) -> bool:
    return one["low"] <= other["high"] and other["low"] <= one["high"]


def cost(name: str) -> Check:
    title = f"try.cost.{name}"

    def check(suite: Suite) -> Iterator[Result]:
        runs = [run(suite, f"cost-{name}-{turn}", ["--cost=light", "--pairs", "3", "--steps", "20"], COSTS[name](suite)) for turn in range(2)]
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


def beside_hand(suite: Suite, title: str, name: str, hand: dict | None, done: Run) -> Iterator[Result]:
    """Whether the gain that `gpuwhy try` measured is that of turns by hand."""
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


def against(name: str) -> Check:
    title = f"try.against.{name}"

    def check(suite: Suite) -> Iterator[Result]:
        before = fix(name, "--steps", str(AGAINST[name]))(suite)
        after = [*before, "--fixed"]
        hand = by_hand(suite, name, [before, after])
        done = run(suite, f"against-{name}", [*FEW, "--allow", "all", "--against", " ".join(after)], before)
        yield from beside_hand(suite, title, name, hand, done)

    return Check(title, check, credit=60.0)


def contents(folder: pathlib.Path) -> dict[str, bytes | None]:
    """Files and folders below this one."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def patched(name: str) -> Check:
    title = f"try.patch.{name}"

    def check(suite: Suite) -> Iterator[Result]:
        if shutil.which("git") is None:
            yield skipped(title, "--patch needs git, which is not installed")
            return
        patch, place = PATCHES[name], suite.folder("patch")
        # Runs by hand leave files of Python.
        own, before, after = (place / side for side in ("own", "before", "after"))
        text = (FIXES.parent / patch.module).read_text()
        fixed = text.replace(patch.before, patch.after)
        for folder in (own, before, after):
            folder.mkdir()
            shutil.copy(FIXES, folder)
            (folder / patch.module).write_text(fixed if folder is after else text)
        diff = place / "fix.diff"
        diff.write_text("".join(difflib.unified_diff(
            text.splitlines(keepends=True), fixed.splitlines(keepends=True), f"a/{patch.module}", f"b/{patch.module}")))
        words = [sys.executable, FIXES.name, "--program", name, "--steps", str(patch.steps)]
        hand = by_hand(suite, name, [within(before, words), within(after, words)])
        kept = contents(own)
        done = run(suite, f"patch-{name}", [*FEW, "--allow", "all", "--patch", str(diff)], words, own)
        yield expect(f"{title}.files", contents(own) == kept, f"the files of the user are as they were: {', '.join(sorted(contents(own)))}")
        yield from beside_hand(suite, title, name, hand, done)

    return Check(title, check, credit=60.0)


def checks() -> list[Check]:
    return [*map(changed, PROGRAMS), *map(cost, COSTS), *map(against, AGAINST), *map(patched, PATCHES)]
