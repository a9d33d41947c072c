"""The file of measurements, overhead.json: complete rounds of single runs, with their machine and time.

    machine       names and versions (machine.py)
    sessions      start (UTC) and load average of each call that measured
    rounds        number, seconds and tools of each finished round
    measurements  one row per program, tool and round

Written after every run, so that an interrupted call keeps its results. Only complete rounds are read again, because only
ratios within a round count.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import statistics
import time


class NotMergeable(Exception):
    """An earlier file that cannot share a table with the measurements of this call."""


def difference(one: dict[str, str], other: dict[str, str]) -> str:
    """Differences of two descriptions of a machine; empty if they agree."""
    return ", ".join(
        f"{name} {one.get(name) or 'unknown'} and {other.get(name) or 'unknown'}"
        for name in {**one, **other} if one.get(name) != other.get(name))


def sentence(machine: dict[str, str]) -> str:
    return ", ".join(value or "unknown GPU" if name == "gpu" else f"{name} {value or 'unknown'}" for name, value in machine.items())


@dataclasses.dataclass
class Measured:
    """Contents of the file."""

    machine: dict[str, str]
    sessions: list[dict] = dataclasses.field(default_factory=list)
    rounds: list[dict] = dataclasses.field(default_factory=list)
    measurements: list[dict] = dataclasses.field(default_factory=list)

    def merge(self, file: pathlib.Path) -> None:
        """Adds the complete rounds of an earlier call.

        Raises NotMergeable when that was on another machine or with other versions.
        """
        earlier = load(file)
        different = difference(earlier.machine, self.machine)
        if different:
            raise NotMergeable(f"{file}: measured under other conditions ({different}): begin a new folder with --out")
        whole = {entry["round"] for entry in earlier.rounds}
        rows = [row for row in earlier.measurements if row["round"] in whole]
        if len(rows) < len(earlier.measurements):
            print(f"{file}: {len(earlier.measurements) - len(rows)} measurements of an unfinished round are left out", flush=True)
        self.sessions, self.rounds, self.measurements = earlier.sessions, earlier.rounds, rows

    def begin_session(self) -> None:
        self.sessions.append({"began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "load": os.getloadavg()[0]})

    def next_round(self) -> int:
        return 1 + max((entry["round"] for entry in self.rounds), default=-1)

    def dates(self) -> str:
        days = sorted({session["began"][:10] for session in self.sessions})
        return " and ".join(days) or "unknown date"

    def save(self, folder: pathlib.Path) -> None:
        # Replaced atomically: a call that is killed while it writes leaves the previous file.
        file = folder / "overhead.json"
        new = file.with_suffix(".new")
        new.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")
        new.replace(file)
        (folder / "overhead.md").write_text(f"{sentence(self.machine)}. {self.dates()}.\n\n{table(self.measurements)}")


def load(file: pathlib.Path) -> Measured:
    """Reads the file. Raises NotMergeable if it is not a file of measurements."""
    try:
        return Measured(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise NotMergeable(f"{file}: not a file of measurements of this version: {error}") from error


def paired_ratios(rows: list[dict], tool: str, base_tool: str = "none") -> list[float]:
    """Time with the tool divided by the time with the base tool, for each round that has both."""
    base = {row["round"]: row["time"] for row in rows if row["tool"] == base_tool and row["time"]}
    return [row["time"] / base[row["round"]] for row in rows if row["tool"] == tool and row["time"] and row["round"] in base]


def shown(value: float, unit: str) -> str:
    """Value with about three digits; nanoseconds from 1,000 up as microseconds."""
    if unit.startswith("ns/") and value >= 1000:
        value, unit = value / 1000, "us/" + unit.removeprefix("ns/")
    return f"{value:.4g} {unit}"


def median_of(rows: list[dict], column: str, digits: str) -> str:
    values = [row[column] for row in rows if row.get(column) is not None]
    return format(statistics.median(values), digits) if values else ""


def table(rows: list[dict]) -> str:
    """Markdown table with medians, and the range of the ratios over the rounds."""
    lines = [
        "| program | tool | median | cost: median (range) | over floor | CPU, s | peak, MiB | to the answer, s | trace, MB "
        "| rounds |", "|---|---|---|---|---|---|---|---|---|---|"]
    for name in dict.fromkeys(row["benchmark"] for row in rows):
        mine = [row for row in rows if row["benchmark"] == name]
        for tool in dict.fromkeys(row["tool"] for row in mine):
            lines.append(table_row(name, tool, mine))
    return "\n".join(lines) + "\n"


def added(ratios: list[float]) -> str:
    """Time added to the bare program: the median of the ratios and their range, as percentages."""
    least, middle, most = ((ratio - 1) * 100 for ratio in (min(ratios), statistics.median(ratios), max(ratios)))
    # Adding 0 removes the sign of a rounded zero.
    median = f"{round(middle, 1) + 0:+.1f} %" if abs(middle) < 9.95 else f"{middle:+.0f} %"
    return f"{median} ({round(least) + 0:+.0f} to {round(most) + 0:+.0f})" if len(ratios) > 1 else f"{median} (one round)"


def floor_of(tool: str, of_program: list[dict]) -> str:
    """Name of the lower bound for a tool: CUPTI alone with the records that the tool takes, if that was measured."""
    as_whole = tool in ("nsys", "gpuwhy-monitor") or tool.startswith("floor")
    by_node = not as_whole and any(row["tool"] == "floor-nodes" for row in of_program)
    return "floor-nodes" if by_node else "floor"


def table_row(name: str, tool: str, of_program: list[dict]) -> str:
    of_tool = [row for row in of_program if row["tool"] == tool]
    good = [row for row in of_tool if row["time"]]
    if not good:
        return f"| {name} | {tool} | failed: {of_tool[-1].get('error', '')[:80]} | | | | | | | 0 of {len(of_tool)} |"
    ratios, over_floor = paired_ratios(of_program, tool), paired_ratios(of_program, tool, floor_of(tool, of_program))
    cost = "" if tool == "none" or not ratios else (
        f"{statistics.median(ratios) - 1:+.1%} ({min(ratios) - 1:+.1%} .. {max(ratios) - 1:+.1%})")
    relative = f"{statistics.median(over_floor):.3f}" if over_floor and tool != "none" and not tool.startswith("floor") else ""
    sizes = [row["trace_bytes"] / 1e6 for row in good if row.get("trace_bytes") is not None and tool != "none"]
    size = f"{statistics.median(sizes):.1f}" if sizes else ""
    rounds = str(len(good)) if len(good) == len(of_tool) else f"{len(good)} of {len(of_tool)}"
    return (
        f"| {name} | {tool} | {shown(statistics.median(row['time'] for row in good), good[0]['unit'])} | {cost} | {relative} | "
        f"{median_of(good, 'cpu_s', '.1f')} | {median_of(good, 'peak_mib', '.0f')} | "
        f"{median_of(good, 'after_last_line_s', '.2f')} | {size} | {rounds} |")
