"""The file of measurements, and the statistics of them.

    machine   names and versions (machine.py)
    began     start (UTC), and `load`, the load average then
    rounds    number; seconds, null if the round was not finished; `rows`: figures by row and tool; `used`: CPU seconds and
              peak MiB of a process by program and tool
    errors    runs without figures, with their reasons

Written after every run, so that an interrupted call keeps its results. Only finished rounds count.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import statistics
import time

BARE, OWN_BARE = "bare", "own_bare"
# Bare run that a tool is compared with: nsys has to start its process, and so has that one.
BASES = {"nsys": OWN_BARE}
# Rounds of which an interval is told.
ENOUGH_ROUNDS = 4
RESAMPLES = 4000


class NotMergeable(Exception):
    """A file that is none of measurements, or that cannot share a table with another."""


def difference(one: dict[str, str], other: dict[str, str]) -> str:
    """Differences of two descriptions of a machine; empty if they agree."""
    return ", ".join(
        f"{name} {one.get(name) or 'unknown'} and {other.get(name) or 'unknown'}"
        for name in {**one, **other} if one.get(name) != other.get(name))


@dataclasses.dataclass(frozen=True)
class Cost:
    """Time under a tool over the bare time of the same round: the median of the rounds, and the interval that holds it at
    95 %, which is None for too few rounds."""

    middle: float
    interval: tuple[float, float] | None
    rounds: int

    def is_none(self) -> bool:
        """True if no cost is shown: the interval contains 1, or all of it is less, which no tool can cause."""
        return self.interval is not None and self.interval[0] <= 1.0

    def __str__(self) -> str:
        middle = "no difference" if self.is_none() else percent(self.middle)
        if self.interval is None:
            return f"{middle} ({self.rounds} round{'s' if self.rounds > 1 else ''})"
        return f"{middle} ({self.range()})"

    def range(self) -> str:
        low, high = self.interval
        # Both ends with the digits of the wider one.
        digits = 1 if max(abs(low - 1), abs(high - 1)) < 0.0995 else 0
        return " to ".join(f"{round((end - 1) * 100, digits) + 0:.{digits}f}" for end in (low, high))


def percent(ratio: float) -> str:
    """Added time, with a sign; adding 0 removes that of a rounded zero."""
    more = (ratio - 1) * 100
    return f"{round(more, 1) + 0:+.1f} %" if abs(more) < 9.95 else f"{more:+.0f} %"


def interval(ratios: list[float], seed: int = 0) -> tuple[float, float]:
    """Interval that holds the median at 95 %, by the percentile bootstrap (Efron and Tibshirani 1993, 13.3)."""
    choose = random.Random(seed)
    medians = sorted(statistics.median(choose.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


@dataclasses.dataclass
class Measured:
    """Contents of the file."""

    machine: dict[str, str]
    began: str = ""
    load: float = 0.0
    rounds: list[dict] = dataclasses.field(default_factory=list)
    errors: list[dict] = dataclasses.field(default_factory=list)

    def begin(self) -> None:
        self.began, self.load = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), os.getloadavg()[0]

    def begin_round(self, number: int) -> None:
        self.rounds.append({"number": number, "seconds": None, "rows": {}, "used": {}})

    def end_round(self, number: int, seconds: float) -> None:
        self.of_round(number)["seconds"] = round(seconds, 1)

    def of_round(self, number: int) -> dict:
        return next(one for one in self.rounds if one["number"] == number)

    def add(self, number: int, program: str, tool: str, figures: dict[str, float], used: list[float] | None) -> None:
        """Figures of one run. A decode step's later figures are compared with the only bare one."""
        this = self.of_round(number)
        if tool in BASES.values() or tool == BARE:
            figures = {**figures, **{row: figures["decode_start"] for row in AFTER_START if "decode_start" in figures}}
        for row, time_of in figures.items():
            this["rows"].setdefault(row, {})[tool] = time_of
        if used is not None:
            this["used"].setdefault(program, {})[tool] = used

    def failed(self, number: int, program: str, tool: str, why: str) -> None:
        self.errors.append({"round": number, "program": program, "tool": tool, "why": why})

    def complete(self) -> list[dict]:
        return [one for one in self.rounds if one["seconds"] is not None]

    def save(self, file: pathlib.Path) -> None:
        # Replaced atomically: a call that is killed while it writes leaves the previous file.
        new = file.with_suffix(".new")
        new.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")
        new.replace(file)

    def bare(self, row: str) -> float | None:
        """Median time without a tool, in the row's unit."""
        times = [one["rows"][row][BARE] for one in self.complete() if BARE in one["rows"].get(row, {})]
        return statistics.median(times) if times else None

    def ratios(self, row: str, tool: str, base: str | None = None) -> list[float]:
        """Time with the tool over that of the base, for each finished round that has both."""
        base = base or BASES.get(tool, BARE)
        of_rounds = [one["rows"].get(row, {}) for one in self.complete()]
        return [times[tool] / times[base] for times in of_rounds if tool in times and base in times]

    def cost(self, row: str, tool: str, base: str | None = None) -> Cost | None:
        """None if no finished round has it."""
        ratios = self.ratios(row, tool, base)
        if not ratios:
            return None
        known = interval(ratios) if len(ratios) >= ENOUGH_ROUNDS else None
        return Cost(statistics.median(ratios), known, len(ratios))

    def used(self, program: str, tool: str) -> tuple[float, float] | None:
        """Median CPU seconds and peak MiB of a run."""
        runs = [one["used"][program][tool] for one in self.complete() if tool in one["used"].get(program, {})]
        return tuple(statistics.median(column) for column in zip(*runs)) if runs else None

    def rows(self) -> list[str]:
        return list(dict.fromkeys(row for one in self.complete() for row in one["rows"]))

    def tools(self) -> list[str]:
        found = dict.fromkeys(tool for one in self.complete() for row in one["rows"].values() for tool in row)
        return [tool for tool in found if tool not in (BARE, OWN_BARE)]

    def table(self) -> str:
        """All costs, one a line, for the terminal."""
        return "\n".join(
            f"{row:16} {tool:8} {cost}, {cost.rounds} rounds"
            for row in self.rows() for tool in self.tools() if (cost := self.cost(row, tool)))


# Rows of a decode step that only gpuwhy's default has.
AFTER_START = ("decode_later", "decode_capture")


def load(file: pathlib.Path) -> Measured:
    """Reads the file. Raises NotMergeable if it is not a file of measurements."""
    try:
        return Measured(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise NotMergeable(f"{file}: not a file of measurements of this version: {error}") from error


def merged(runs: list[Measured]) -> Measured:
    """The rounds of several runs. Raises NotMergeable if they were on different machines or of different versions."""
    for other in runs[1:]:
        if different := difference(runs[0].machine, other.machine):
            raise NotMergeable(f"measured under different conditions: {different}")
    rounds = [{**one, "number": number} for number, one in enumerate(one for run in runs for one in run.rounds)]
    return Measured(runs[0].machine, runs[0].began, runs[0].load, rounds, [error for run in runs for error in run.errors])


def apart(runs: list[Measured]) -> list[str]:
    """Costs of which the intervals of two runs do not overlap."""
    found = []
    for row in runs[0].rows():
        for tool in runs[0].tools():
            costs = [run.cost(row, tool) for run in runs]
            known = [cost.interval for cost in costs if cost and cost.interval]
            if any(not overlap(known[0], other) for other in known[1:]):
                found.append(f"{row}, {tool}: " + " and ".join(str(cost) for cost in costs))
    return found
