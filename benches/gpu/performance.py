"""docs/design/performance.md from the measurements: all rows and tools, the targets, and whether two runs agree.

For publish.py. No number in the file is written by hand.
"""

from __future__ import annotations

import dataclasses
import textwrap

from measured import Measured, apart

# Width of the text, columns.
WIDTH = 120
# Rows and their names, in the order of the table.
ROWS = {
    "gpt": "GPT training", "resnet": "ResNet-50 training", "mlp": "MLP training, 280 tiny kernels a step",
    "launch": "empty kernels, one after another", "decode_start": "decode step as one CUDA graph: at the start",
    "decode_later": "after ten seconds", "decode_capture": "in a capture by command"} | {
    f"serving_{requests}_{part}": f"server, {requests} request{'s' if requests > 1 else ''} at a time: a token, {part.upper()}"
    for requests in (1, 8, 64) for part in ("p50", "p99")}
# Tools and their names, in the order of the columns.
TOOLS = {
    "again": "bare again", "floor": "CUPTI only", "gpuwhy": "default", "monitor": "monitor", "auto": "auto", "full": "full",
    "nsys": "nsys", "torch": "torch.profiler"}


@dataclasses.dataclass(frozen=True)
class Target:
    """A ratio of times that must be at most `limit`."""

    text: str
    row: str
    tool: str
    limit: float
    base: str = "bare"


TARGETS = [
    Target("default over bare, GPT training", "gpt", "gpuwhy", 1.010),
    Target("default over bare, ResNet-50 training", "resnet", "gpuwhy", 1.010),
    Target("default over bare, MLP training", "mlp", "gpuwhy", 1.10),
    Target("default over CUPTI only, MLP training", "mlp", "gpuwhy", 1.02, "floor"),
    Target("default over CUPTI only, empty kernels", "launch", "gpuwhy", 1.02, "floor"),
    Target("default over bare, decode step after ten seconds", "decode_later", "gpuwhy", 1.03),
    Target("monitor over bare, GPT training", "gpt", "monitor", 1.005),
    Target("monitor over bare, MLP training", "mlp", "monitor", 1.005),
    Target("monitor over bare, token of a server, 8 requests", "serving_8_p50", "monitor", 1.01),
]


def judged(target: Target, measured: Measured) -> str:
    """Row of the table of targets."""
    cost = measured.cost(target.row, target.tool, target.base)
    if cost is None:
        return f"| {target.text} | {target.limit:.3f} | not measured | |"
    if cost.interval is None:
        return f"| {target.text} | {target.limit:.3f} | {cost.middle:.3f} | turns: {cost.turns} |"
    low, high = cost.interval
    met = "met" if high <= target.limit else "**missed**" if low > target.limit else "open: the limit is in the interval"
    return f"| {target.text} | {target.limit:.3f} | {cost.middle:.3f} ({low:.3f} to {high:.3f}) | {met} |"


def shown(value: float, row: str) -> str:
    """Bare time with three digits."""
    if row == "launch":
        return f"{value / 1000:.3g} us/kernel"
    return f"{value:.3g} ms/{'token' if row.startswith('serving') else 'step'}"


def costs(measured: Measured) -> list[str]:
    """A row for each program, a column for each tool."""
    tools = [tool for tool in TOOLS if tool in measured.tools()]
    header = ["program", "bare", *(TOOLS[tool] for tool in tools)]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for row, name in ROWS.items():
        bare = measured.bare(row)
        if bare is not None:
            cells = [str(measured.cost(row, tool) or "") for tool in tools]
            lines.append(f"| {' | '.join([name, shown(bare, row), *cells])} |")
    return lines


def agreement(runs: list[Measured]) -> str:
    """Whether the intervals of the runs overlap."""
    if len(runs) < 2:
        return "There was one run."
    different, pairs = apart(runs)
    if not different:
        return f"The intervals of the two runs overlap for all {pairs} pairs of a row and a tool."
    return (f"The intervals of the two runs overlap for {pairs - len(different)} of {pairs} pairs of a row and a tool, not for: "
            f"{'; '.join(different)}.")


def document(runs: list[Measured], measured: Measured) -> str:
    """`measured` has the rounds of all runs."""
    def turns(run: Measured) -> str:
        return " + ".join(str(max(map(len, one["rows"].values()))) for one in run.finished())

    began = " and ".join(f"{run.began} ({turns(run)} rounds in {len(run.finished())} generations, load {run.load:.1f})" for run in runs)
    lines = [
        "# Performance",
        "",
        "Measured by `benches/gpu/overhead.py`, written by `benches/gpu/publish.py`; [Overhead](overhead.md) explains the method",
        "and the figures.",
        "",
        *textwrap.wrap(f"Started at {began}. {agreement(runs)}", WIDTH),
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value or 'unknown'} |" for name, value in measured.machine.items()),
        "",
        "## Added time",
        "",
        *textwrap.wrap(
            "Time under a tool over the bare time of the same round, minus 1: the median of the generations, each the median of "
            "its rounds, and the interval that holds it at 95 % (bootstrap of generations and of the rounds in them). *No "
            "difference*: 0 is in the interval, or all of it is below; *unclear*: 0 and more than 5 % are in it. *Bare again* is another bare process, and shows what the "
            "method can tell. CUPTI only records the nodes of the decode step. torch.profiler, nsys and `full` have a turn in "
            "every third or fourth round, and nsys has one process for all generations of a run.", WIDTH),
        "",
        *costs(measured),
        "",
        *textwrap.wrap(
            "The server is transformers' continuous batching without CUDA graphs, of a Llama with 4 layers; a token's time is from "
            "one token of a request to its next. A capture by command records all nodes.", WIDTH),
        "",
        "## Targets",
        "",
        "| target | at most | median (interval) | |",
        "|---|---|---|---|",
        *(judged(target, measured) for target in TARGETS),
    ]
    return "\n".join(lines) + "\n"
