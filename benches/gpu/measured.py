"""The file of measurements, and the statistics of them.

    machine      names and versions (machine.py)
    began        start (UTC), and `load`, the load average then
    generations  number; seconds, null if it was not finished; `rows`: for each row its turns, which have a figure or a list of
                 figures by tool
    errors       processes and turns without figures, with their reasons

Written after every round, so that an interrupted call keeps its results. Only finished generations count.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import statistics
import time

BARE, AGAIN = "bare", "again"
# Generations of which an interval is told, turns in each that a tool needs, and that the published ones must have of bare.
GENERATIONS, FEWEST_TURNS, TURNS = 3, 3, 7
RESAMPLES = 1000
# Tool of a decode step -> the row that has it as the default's.
ROWS_OF_TOOLS = {"later": "decode_later", "capture": "decode_capture"}


class NotMergeable(Exception):
    """A file that is none of measurements, or that cannot share a table with another."""


def difference(one: dict[str, str], other: dict[str, str]) -> str:
    """Differences of two descriptions of a machine; empty if they agree."""
    return ", ".join(
        f"{name} {one.get(name) or 'unknown'} and {other.get(name) or 'unknown'}"
        for name in {**one, **other} if one.get(name) != other.get(name))


@dataclasses.dataclass(frozen=True)
class Cost:
    """Time under a tool over the bare time of the same round: the median, and the interval that holds it at 95 %, which is
    None for too few generations."""

    middle: float
    interval: tuple[float, float] | None
    turns: int

    def is_none(self) -> bool:
        """True if no cost is shown: the interval contains 1, or all of it is less, which no tool can cause."""
        return self.interval is not None and self.interval[0] <= 1.0

    def is_unclear(self) -> bool:
        """True if the interval contains no cost but also one that matters: more than 5 %."""
        return self.is_none() and self.interval[1] > 1.05

    def __str__(self) -> str:
        middle = "unclear" if self.is_unclear() else "no difference" if self.is_none() else percent(self.middle)
        if self.interval is None:
            return f"{middle} ({self.turns} turn{'s' if self.turns > 1 else ''})"
        return f"{middle} ({self.range()}{' %' if self.is_none() else ''})"

    def range(self) -> str:
        low, high = self.interval
        # Both ends with the digits of the wider one.
        digits = 1 if max(abs(low - 1), abs(high - 1)) < 0.0995 else 0
        return " to ".join(f"{round((end - 1) * 100, digits) + 0:.{digits}f}" for end in (low, high))


def percent(ratio: float) -> str:
    """Added time, with a sign; adding 0 removes that of a rounded zero."""
    more = (ratio - 1) * 100
    return f"{round(more, 1) + 0:+.1f} %" if abs(more) < 9.95 else f"{more:+.0f} %"


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# A turn of a tool, and the bare turn of the same round: a figure, or a list of them.
Pair = tuple[float, float] | tuple[list[float], list[float]]


def ratio(turns: list[Pair], part: str) -> float:
    """Ratio of a generation: the median over its turns; for `p99` that of the percentiles of all figures, since a turn has
    too few for one of its own."""
    if part == "p99":
        tool, base = ([value for turn in turns for value in turn[side]] for side in (0, 1))
        return percentile(tool, 0.99) / percentile(base, 0.99)
    if part == "p50":
        return statistics.median(statistics.median(tool) / statistics.median(base) for tool, base in turns)
    return statistics.median(tool / base for tool, base in turns)


def interval(generations: list[list[Pair]], part: str = "", seed: int = 0) -> tuple[float, float]:
    """Interval that holds the median at 95 %, by the percentile bootstrap (Efron and Tibshirani 1993, 13.3), which draws
    generations and then turns of each."""
    choose, medians = random.Random(seed), []
    for _ in range(RESAMPLES):
        drawn = choose.choices(generations, k=len(generations))
        medians.append(statistics.median(ratio(choose.choices(turns, k=len(turns)), part) for turns in drawn))
    medians.sort()
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def part_of(row: str) -> tuple[str, str]:
    """Row of the file, and which part of its figures the row of the table is."""
    name, _, part = row.rpartition("_")
    return (name, part) if part in ("p50", "p99") else (row, "")


@dataclasses.dataclass
class Measured:
    """Contents of the file."""

    machine: dict[str, str]
    began: str = ""
    load: float = 0.0
    generations: list[dict] = dataclasses.field(default_factory=list)
    errors: list[dict] = dataclasses.field(default_factory=list)

    def begin(self) -> None:
        self.began, self.load = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), os.getloadavg()[0]

    def begin_generation(self, number: int) -> None:
        self.generations.append({"number": number, "seconds": None, "rows": {}})

    def end_generation(self, number: int, seconds: float) -> None:
        next(one for one in self.generations if one["number"] == number)["seconds"] = round(seconds, 1)

    def add(self, program: str, figures: dict[str, dict]) -> None:
        """Figures of a round of the program, by tool. Each row has the bare turn of its round."""
        turns: dict[str, dict] = {}
        for tool, of_tool in figures.items():
            for row, value in of_tool.items():
                if row == program == "decode":
                    row_of, name = (ROWS_OF_TOOLS[tool], "gpuwhy") if tool in ROWS_OF_TOOLS else ("decode_start", tool)
                    turns.setdefault(row_of, {})[name] = value
                else:
                    turns.setdefault(row, {})[tool] = value
        for row in ROWS_OF_TOOLS.values():
            if row in turns and BARE in turns.get("decode_start", {}):
                turns[row][BARE] = turns["decode_start"][BARE]
        for row, turn in turns.items():
            self.generations[-1]["rows"].setdefault(row, []).append(turn)

    def failed(self, program: str, tool: str, why: str) -> None:
        self.errors.append({"program": program, "tool": tool, "why": why})

    def finished(self) -> list[dict]:
        return [one for one in self.generations if one["seconds"] is not None]

    def save(self, file: pathlib.Path) -> None:
        # Replaced atomically: a call that is killed while it writes leaves the previous file.
        new = file.with_suffix(".new")
        new.write_text(json.dumps(dataclasses.asdict(self)) + "\n")
        new.replace(file)

    def turns(self, row: str) -> list[dict]:
        return [turn for one in self.finished() for turn in one["rows"].get(part_of(row)[0], [])]

    def bare(self, row: str) -> float | None:
        """Median time without a tool, in the row's unit; for p99 that of all figures."""
        values = [turn[BARE] for turn in self.turns(row) if BARE in turn]
        flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
        return percentile(flat, 0.99 if row.endswith("_p99") else 0.5) if flat else None

    def pairs(self, row: str, tool: str, base: str = BARE) -> list[list[Pair]]:
        """Turns of the tool and of the base in the same round, by finished generation."""
        name = part_of(row)[0]
        found = [[(turn[tool], turn[base]) for turn in one["rows"].get(name, []) if tool in turn and base in turn]
                 for one in self.finished()]
        return [turns for turns in found if turns]

    def cost(self, row: str, tool: str, base: str = BARE) -> Cost | None:
        """None if no finished generation has it."""
        pairs, part = self.pairs(row, tool, base), part_of(row)[1]
        if not pairs:
            return None
        # Turns are not spread over the generations if the tool failed in most of them.
        pairs = [turns for turns in pairs if len(turns) >= FEWEST_TURNS] or pairs
        enough = len(pairs) >= GENERATIONS and min(map(len, pairs)) >= FEWEST_TURNS
        middle = statistics.median(ratio(turns, part) for turns in pairs)
        return Cost(middle, interval(pairs, part) if enough else None, sum(map(len, pairs)))

    def rows(self) -> list[str]:
        found = dict.fromkeys(row for one in self.finished() for row in one["rows"])
        return [part for row in found for part in ([f"{row}_p50", f"{row}_p99"] if row.startswith("serving") else [row])]

    def tools(self) -> list[str]:
        found = dict.fromkeys(tool for row in self.rows() for turn in self.turns(row) for tool in turn)
        return [tool for tool in found if tool != BARE]

    def why_not(self) -> str | None:
        """Why it is too little to be published."""
        finished = self.finished()
        few = [
            row for one in finished for row in self.rows()
            if row not in ROWS_OF_TOOLS.values() and sum(BARE in turn for turn in one["rows"].get(part_of(row)[0], [])) < TURNS]
        if len(finished) < GENERATIONS:
            return f"{len(finished)} finished generations, {GENERATIONS} are needed"
        return f"fewer than {TURNS} turns in a generation: {', '.join(dict.fromkeys(few))}" if few else None

    def table(self) -> str:
        """All costs, one a line, for the terminal."""
        return "\n".join(
            f"{row:16} {tool:8} {cost}, {cost.turns} turns"
            for row in self.rows() for tool in self.tools() if (cost := self.cost(row, tool)))


def load(file: pathlib.Path) -> Measured:
    """Reads the file. Raises NotMergeable if it is not a file of measurements."""
    try:
        return Measured(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise NotMergeable(f"{file}: not a file of measurements of this version: {error}") from error


def merged(runs: list[Measured]) -> Measured:
    """The generations of several runs. Raises NotMergeable if they were on different machines or of different versions."""
    for other in runs[1:]:
        if different := difference(runs[0].machine, other.machine):
            raise NotMergeable(f"measured under different conditions: {different}")
    all_of_them = enumerate(one for run in runs for one in run.generations)
    generations = [{**one, "number": number} for number, one in all_of_them]
    return Measured(runs[0].machine, runs[0].began, runs[0].load, generations, [error for run in runs for error in run.errors])


def apart(runs: list[Measured]) -> tuple[list[str], int]:
    """Costs of which the intervals of the runs do not overlap, and the number of those with intervals in all runs."""
    found, compared = [], 0
    for row in runs[0].rows():
        for tool in runs[0].tools():
            costs = [run.cost(row, tool) for run in runs]
            if all(cost and cost.interval for cost in costs):
                compared += 1
                if any(not overlap(costs[0].interval, other.interval) for other in costs[1:]):
                    found.append(f"{row}, {tool}: " + " and ".join(str(cost) for cost in costs))
    return found, compared
