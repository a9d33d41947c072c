"""docs/design/performance.md from overhead.json: the targets next to the measurements, with missed ones marked.

For publish.py. A value is a median over the rounds; a target without measurements is marked.
No number in the file is written by hand.
"""

from __future__ import annotations

import dataclasses
import statistics
import textwrap
from typing import Callable

from measured import Measured, added, floor_of, median_of, paired_ratios, shown

# Minimum number of rounds for the result `met`.
ENOUGH_ROUNDS = 7
# Width of the text, columns.
WIDTH = 120


@dataclasses.dataclass(frozen=True)
class Target:
    """A value that must be at most `limit`."""

    text: str
    program: str | None  # None: every program, of which the worst counts
    limit: float
    values: Callable[[list[dict]], list[float]]  # values from the rows of one program, one for each round
    digits: str = ".3f"


def ratio(tool: str, base: str) -> Callable[[list[dict]], list[float]]:
    """Ratio of the times that programs measure themselves; excludes complete processes, which are mostly start-up."""
    return lambda rows: paired_ratios([row for row in rows if not row.get("whole")], tool, base)


def beyond(column: str, tool: str, base: str | None = None) -> Callable[[list[dict]], list[float]]:
    """Difference between `tool` and `base`, or CUPTI alone with the records that the tool takes, in the same round."""

    def values(rows: list[dict]) -> list[float]:
        by = base or floor_of(tool, rows)
        of_base = {row["round"]: row[column] for row in rows if row["tool"] == by and row.get(column) is not None}
        mine = [row for row in rows if row["tool"] == tool and row.get(column) is not None]
        return [row[column] - of_base[row["round"]] for row in mine if row["round"] in of_base]

    return values


def column(name: str, tool: str) -> Callable[[list[dict]], list[float]]:
    return lambda rows: [row[name] for row in rows if row["tool"] == tool and row.get(name) is not None]


def busy_threads(rows: list[dict]) -> list[float]:
    """CPU usage of gpuwhy's threads, scaled from the rate of the program to 100,000 kernels per second, percent."""
    return [
        100 * row["threads_share"] * 100_000 / row["kernels_per_s"]
        for row in rows if row["tool"] == "gpuwhy" and row.get("kernels_per_s")]


def over_floor(tool: str) -> Callable[[list[dict]], list[float]]:
    """Ratio of the times that programs measure themselves to those of CUPTI alone with the records that the tool takes."""
    return lambda rows: ratio(tool, floor_of(tool, rows))(rows)


TARGETS = [
    Target("light over CUPTI only", None, 1.02, over_floor("gpuwhy")),
    Target("light over no tool, MLP training", "mlp", 1.10, ratio("gpuwhy", "none")),
    Target("light over no tool, ResNet-50 training", "resnet", 1.010, ratio("gpuwhy", "none")),
    Target("light over no tool, GPT training", "gpt", 1.010, ratio("gpuwhy", "none")),
    Target("monitor over no tool", None, 1.005, ratio("gpuwhy-monitor", "none")),
    Target("host memory beyond CUPTI only, MiB", None, 64, beyond("peak_mib", "gpuwhy"), ".0f"),
    Target("gpuwhy's threads at 100,000 kernels a second, % of a core", "launch", 5, busy_threads, ".1f"),
    Target("records lost, 8 threads launching", "threads", 0, column("lost", "gpuwhy"), ".0f"),
    Target("from the last line to the end, beyond no tool, s", None, 0.2, beyond("after_last_line_s", "gpuwhy", "none"), ".2f"),
]


def judged(target: Target, rows: list[dict]) -> str:
    """Row of the table."""
    programs = [target.program] if target.program else list(dict.fromkeys(row["benchmark"] for row in rows))
    found = {}
    for program in programs:
        values = target.values([row for row in rows if row["benchmark"] == program])
        if values:
            found[program] = values
    limit = format(target.limit, target.digits)
    if not found:
        return f"| {target.text} | {limit} | not measured | |"
    worst = max(found, key=lambda program: statistics.median(found[program]))
    values = found[worst]
    median = statistics.median(values)
    spread = f"{min(values):{target.digits}} .. {max(values):{target.digits}}"
    bottleneck = "met" if median <= target.limit else "**missed**"
    if len(values) < ENOUGH_ROUNDS:
        bottleneck += f", rounds: {len(values)}"
    where = f" ({worst})" if target.program is None else ""
    return f"| {target.text} | {limit} | {median:{target.digits}} ({spread}){where} | {bottleneck} |"


# Tools in the order of the columns, with their names there.
COLUMNS = {
    "none": "bare", "floor": "CUPTI only", "floor-nodes": "CUPTI only, nodes", "gpuwhy": "light", "gpuwhy-nodes": "light, nodes",
    "gpuwhy-monitor": "monitor", "gpuwhy-full": "full", "nsys": "nsys", "nsys-node": "nsys, nodes", "torch": "torch.profiler"}


def cost_cell(tool: str, of_program: list[dict]) -> str:
    """Added time, and how many runs succeeded if some failed."""
    of_tool = [row for row in of_program if row["tool"] == tool]
    good = [row for row in of_tool if row["time"]]
    if not of_tool or not good:
        return "failed" if of_tool else ""
    if tool == "none":
        return shown(statistics.median(row["time"] for row in good), good[0]["unit"])
    ratios = paired_ratios(of_program, tool)
    if not ratios:
        return ""
    failed = "" if len(good) == len(of_tool) else f", {len(good)} of {len(of_tool)}"
    return added(ratios) + failed


def resources_cell(tool: str, of_program: list[dict]) -> str:
    """CPU seconds, peak MiB, seconds to the end and trace MB."""
    good = [row for row in of_program if row["tool"] == tool and row["time"]]
    sizes = [{"mb": row["trace_bytes"] / 1e6} for row in good if row.get("trace_bytes") is not None and tool != "none"]
    cells = [median_of(good, "cpu_s", ".1f"), median_of(good, "peak_mib", ".0f"), median_of(good, "after_last_line_s", ".2f"),
             median_of(sizes, "mb", ".1f")]
    return "/".join(cells).rstrip("/") if any(cells) else ""


def by_program(rows: list[dict], cell: Callable[[str, list[dict]], str], over_floor: bool = False) -> list[str]:
    """A table with a row for each program for which a cell is known, and a column for each tool."""
    tools = [tool for tool in COLUMNS if any(row["tool"] == tool for row in rows)]
    last = ["light over CUPTI only"] if over_floor else []
    header = ["program", *(COLUMNS[tool] for tool in tools), *last]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for program in dict.fromkeys(row["benchmark"] for row in rows):
        mine = [row for row in rows if row["benchmark"] == program]
        cells = [cell(tool, mine) for tool in tools]
        if over_floor:
            ratios = paired_ratios(mine, "gpuwhy", floor_of("gpuwhy", mine))
            cells.append(f"{statistics.median(ratios):.3f}" if ratios else "")
        if any(cells):
            lines.append(f"| {' | '.join([program, *cells])} |")
    return lines


def document(measured: Measured) -> str:
    rows = measured.measurements
    versions = sorted({str(row["cupti"]) for row in rows if row.get("cupti")})
    sessions = ", ".join(f"{session['began']} (load {session['load']:.1f})" for session in measured.sessions)
    lines = [
        "# Performance",
        "",
        "Measured by `benches/gpu/overhead.py`, written by `benches/gpu/publish.py`; [Overhead](overhead.md) explains the figures.",
        "Ratios are paired within rounds. Where a target holds for every program, the worst is shown.",
        "",
        *textwrap.wrap(f"Measured on {measured.dates()}, rounds: {len(measured.rounds)}; started at {sessions}.", WIDTH),
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value or 'unknown'} |" for name, value in measured.machine.items()),
        f"| CUPTI's API in the programs | {', '.join(versions) or 'unknown'} |",
        "",
        "## Targets",
        "",
        "| target | at most | median (range) | |",
        "|---|---|---|---|",
        *(judged(target, rows) for target in TARGETS),
        "",
        "## Added time",
        "",
        "Relative to the bare program: median (range over the rounds). `training` is the process of `mlp`, `resnet` and",
        "`gpt`, from start to end. Compared with CUPTI only, nodes of graphs are recorded by both or by neither.",
        "",
        *by_program(rows, cost_cell, over_floor=True),
        "",
        "## Resources",
        "",
        "CPU time of all descendants in s / peak memory of the largest process in MiB / time from the program's last figure to",
        "the end of the command in s / trace in MB.",
        "",
        *by_program(rows, resources_cell),
    ]
    return "\n".join(lines) + "\n"
