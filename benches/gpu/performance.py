"""docs/design/performance.md from overhead.json: the targets next to the measurements, with missed ones marked.

For publish.py. A value is a median over the rounds; a target without measurements is marked.
No number in the file is written by hand.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import Callable

from measured import Measured, floor_of, paired_ratios, table

# Minimum number of rounds for the result `met`.
ENOUGH_ROUNDS = 7


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


def beyond(column: str, tool: str, base: str) -> Callable[[list[dict]], list[float]]:
    """Difference between `tool` and `base` in the same round."""

    def values(rows: list[dict]) -> list[float]:
        of_base = {row["round"]: row[column] for row in rows if row["tool"] == base and row.get(column) is not None}
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
    Target("light over the floor", None, 1.02, over_floor("gpuwhy")),
    Target("light over no tool, MLP training", "mlp", 1.10, ratio("gpuwhy", "none")),
    Target("light over no tool, ResNet-50 training", "resnet", 1.010, ratio("gpuwhy", "none")),
    Target("light over no tool, GPT training", "gpt", 1.010, ratio("gpuwhy", "none")),
    Target("watch over no tool", None, 1.005, ratio("gpuwhy-monitor", "none")),
    Target("light with nodes of CUDA graphs over the floor", None, 1.02, over_floor("gpuwhy-nodes")),
    Target("host memory beyond the floor, MiB", None, 64, beyond("peak_mib", "gpuwhy", "floor"), ".0f"),
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
    verdict = "met" if median <= target.limit else "**missed**"
    if len(values) < ENOUGH_ROUNDS:
        verdict += f", rounds: {len(values)}"
    where = f" ({worst})" if target.program is None else ""
    return f"| {target.text} | {limit} | {median:{target.digits}} ({spread}){where} | {verdict} |"


def document(measured: Measured) -> str:
    rows = measured.measurements
    versions = sorted({str(row["cupti"]) for row in rows if row.get("cupti")})
    sessions = ", ".join(f"{session['began']} (load {session['load']:.1f})" for session in measured.sessions)
    lines = [
        "# Performance: targets and what was measured",
        "",
        "Measured by `benches/gpu/overhead.py`, written by `benches/gpu/publish.py`. Ratios are paired within rounds; where a target",
        "holds for every program, the worst is shown. What each figure means and how much it scatters is in",
        "[overhead.md](overhead.md), and what opening a trace of 100 million events takes.",
        "",
        f"Measured on {measured.dates()}, rounds: {len(measured.rounds)}; begun at {sessions}.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value or 'unknown'} |" for name, value in measured.machine.items()),
        f"| CUPTI's API in the programs | {', '.join(versions) or 'unknown'} |",
        "",
        "| target | at most | median (range) | |",
        "|---|---|---|---|",
        *(judged(target, rows) for target in TARGETS),
        "",
        "## All measurements",
        "",
        "`mlp`, `resnet` and `gpt` are parts of one process, `training`, whose row has the seconds from its start to its end.",
        "`to the answer` is the time from the program's last figure to the end of the command, when the report or the file is",
        "there; CPU time is that of all descendants, peak memory that of the largest process.",
        "",
        table(rows),
    ]
    return "\n".join(lines)
