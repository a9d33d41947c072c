"""The strict sheet: what a tool's answer says about the planted cause, and what a reader would change after it.

Group, line, gain and cost are read from the answer by program. The remedy is judged by a person, who quotes the sentence
that the reader acts on; a quote that is not in the answer does not count.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import re
import statistics
from collections.abc import Sequence

from pairs import HERE, PROGRAMS
from tools import TOOLS

# From this gain on, a fix is worth doing. Below it, the right answer is that the change gains little.
WORTH_DOING = 1.15
# Reason for the marks of a program for which the tool failed.
NO_ANSWER = "No answer."
MARKS = {1: "yes", 0.5: "half", 0: "no"}


@dataclasses.dataclass(frozen=True)
class Truth:
    """What is true of a program: measured milliseconds a step, five pairs before and after the fix."""

    cause: str
    fix: str
    group: str
    lines: tuple[int, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def gains(self) -> list[float]:
        """The gain of each pair."""
        return [before / after for before, after in zip(self.before, self.after)]

    @property
    def gain(self) -> float:
        return statistics.median(self.gains)


def read(file: pathlib.Path) -> dict:
    return json.loads(file.read_text()) if file.exists() else {}


def names() -> list[str]:
    return list(read(HERE / "truth.json"))


def truths(measured: dict | None = None) -> dict[str, Truth]:
    """The stored truths; `measured` has other times of bare runs."""
    found = {}
    for name, one in read(HERE / "truth.json").items():
        source = (PROGRAMS / f"{name}.py").read_text().splitlines()
        lines = tuple(number for number, line in enumerate(source, 1) if any(text in line for text in one["lines"]))
        times = (measured or {}).get(name, one)
        found[name] = Truth(
            one["cause"], one["fix"], one["group"], lines, tuple(times.get("before", ())), tuple(times.get("after", ())))
    return found


@dataclasses.dataclass(frozen=True)
class Score:
    """Marks of one answer; None where there is nothing to judge."""

    group: float | None
    line: float | None
    remedy: float | None
    # The gain is in the interval that the answer gives, or keeps to its only bound.
    inside: float | None
    holds: float | None
    # Time of a step under the tool by that without.
    cost: float | None
    said: str = ""
    reason: str = ""


def paragraph(answer: str, quote: str) -> str:
    """The part of an answer that a quoted sentence is in: up to the next line that starts farther left."""
    flat, starts, at = [], [], 0
    for line in answer.splitlines():
        if flat and not line.startswith("   "):
            starts.append(at)
        flat.append(line)
        at += len(line) + 1
    parts, begin = [], 0
    for start in [*starts, len(answer)]:
        parts.append(answer[begin:start])
        begin = start
    return next((part for part in parts if squeezed(quote) in squeezed(part)), "")


def squeezed(text: str) -> str:
    return " ".join(text.split())


def said_gain(part: str) -> tuple[float, float, str] | None:
    """Lowest and highest gain that a part of an answer admits, and its words."""
    text = squeezed(part)
    found = re.search(r"Gain(?: alone)?: ((?:about|at least|at most|more than)?[^.]*?(\d[\d.]*)x(?: in all)?(?: \(([\d.]+)x to ([\d.]+)x\))?)", text)
    if found is None:
        return (0.0, WORTH_DOING, "gains little") if "it gains little" in text else None
    words, value = found[1], float(found[2])
    if found[3]:
        return float(found[3]), float(found[4]), words
    if words.startswith(("at least", "more than")):
        return value, math.inf, words
    if words.startswith("at most"):
        return 0.0, value, words
    return value, value, words


def score(tool: str, name: str, truth: Truth, answer: str, row: dict, cost: float | None) -> Score:
    """Marks of an answer. The group is half if it stands beside others and nothing says which one matters; the line must
    be the first one of the program that the answer names."""
    groups = TOOLS[tool].groups(answer)
    group = 0.0 if truth.group not in groups else 1.0 if len(groups) == 1 else 0.5
    named = [int(number) for number in re.findall(rf"\b{name}\.py[:(](\d+)", answer)]  # torch.profiler: NAME.py(12): step
    line = float(bool(named) and named[0] in truth.lines)
    quote = row.get("quote", "")
    is_there = not quote or squeezed(quote) in squeezed(answer)
    remedy = row.get("remedy") if is_there else None
    inside, holds, said = None, None, ""
    if found := said_gain(paragraph(answer, quote)) if quote and is_there else None:
        low, high, said = found
        is_right = float(low <= truth.gain <= high)
        inside, holds = (None, is_right) if low == 0 or high == math.inf else (is_right, None)
    return Score(group, line, remedy, inside, holds, cost, said, row.get("reason", "") if is_there else "not judged yet")


def cost(measured: float | dict | None, truth: Truth) -> float | None:
    """Time of a step under the tool by that without, which torch.profiler's runs measure themselves."""
    if isinstance(measured, dict):
        return measured["traced"] / measured["plain"]
    return measured / statistics.median(truth.before) if measured and truth.before else None


def scores(folder: pathlib.Path, tool: str, chosen: Sequence[str]) -> dict[str, Score]:
    """Scores of all programs; without any answer of the tool, none. A program for which the tool failed has an answer of nothing."""
    times, sheet = read(folder / "times.json"), read(HERE / "sheet.json").get(tool, {})
    truth, answers = truths(times.get("bare")), {path.stem: path.read_text() for path in (folder / "answers" / tool).glob("*.txt")}
    found = {}
    for name in chosen if answers else ():
        taken = cost(times.get(TOOLS[tool].recorder, {}).get(name), truth[name])
        found[name] = (
            score(tool, name, truth[name], answers[name], sheet.get(name, {}), taken) if name in answers
            else Score(0, 0, 0, None, None, taken, "", NO_ANSWER))
    return found


def mark(value: float | None) -> str:
    return "" if value is None else MARKS[value]


def total(values: Sequence[float | None]) -> str:
    """Sum of marks by their number."""
    known = [value for value in values if value is not None]
    return f"{sum(known):g} of {len(known)}" if known else "none"


def tables(folder: pathlib.Path, tools: Sequence[str], chosen: Sequence[str]) -> str:
    """The tables of README.md: totals, the programs, and what each tool said of each."""
    all_scores = {tool: scores(folder, tool, chosen) for tool in tools}
    lines = ["| tool | version | answers | group | line | remedy | gain in interval | bound of gain holds | cost |", "|---|---|---|---|---|---|---|---|---|"]
    for tool, found in all_scores.items():
        version = (folder / "answers" / tool / "version")
        if not found:
            continue
        costs = [one.cost for one in found.values() if one.cost is not None]
        spread = f"{statistics.median(costs):.2f} ({min(costs):.2f} to {max(costs):.2f})" if costs else ""
        lines.append(
            f"| {TOOLS[tool].title} | {version.read_text().strip() if version.exists() else 'unknown'} | "
            f"{sum(one.reason != NO_ANSWER for one in found.values())} of {len(found)} | "
            + "".join(f"{total([getattr(one, key) for one in found.values()])} | " for key in ("group", "line", "remedy", "inside", "holds"))
            + f"{spread} |")
    lines += ["", "| program | cause | group | fix | gain by hand |", "|---|---|---|---|---|"]
    for name, truth in truths(read(folder / "times.json").get("bare")).items():
        if name in chosen:
            gain = f"{truth.gain:.2f}x ({min(truth.gains):.2f} to {max(truth.gains):.2f})" if truth.before else "not measured"
            lines.append(f"| `{name}` | {truth.cause} | {truth.group} | {truth.fix} | {gain} |")
    lines += ["", "| program | tool | group | line | remedy | gain said | right | cost | why this remedy has this mark |", "|---|---|---|---|---|---|---|---|---|"]
    for name in chosen:
        for tool, found in all_scores.items():
            if one := found.get(name):
                taken = f"{one.cost:.2f}" if one.cost else ""
                right = mark(one.holds if one.inside is None else one.inside)
                lines.append(
                    f"| `{name}` | {tool} | {mark(one.group)} | {mark(one.line)} | {mark(one.remedy)} | {one.said} | {right} | {taken} | {one.reason} |")
    return "\n".join(lines) + "\n"


def show(folder: pathlib.Path, tools: Sequence[str], chosen: Sequence[str], as_table: bool) -> int:
    text = tables(folder, tools, chosen)
    print(text if as_table else re.sub(r"^\|?[-|]+\|$\n", "", text, flags=re.M).replace("|", " "), end="")
    return 0
