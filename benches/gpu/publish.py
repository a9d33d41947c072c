"""Publishes the numbers of overhead.json in the documentation, the README and the help.

    python3 benches/gpu/publish.py overhead.json

Writes docs/design/performance.md, docs/design/overhead.svg, cli/args/prices.txt (the modes in `gpuwhy run --help`) and the marked part of
README.md. No number there is written by hand, so all of them are of the same measurements.
"""

from __future__ import annotations

import pathlib
import re
import statistics
import sys
import textwrap

import performance
import plot
from measured import Measured, NotMergeable, added, load, paired_ratios, shown

# Width of the help, columns.
HELP_WIDTH = 118
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Names of programs for readers: in a table, and in a list of overheads.
PROGRAMS = {
    "gpt": ("GPT training", "GPT"),
    "resnet": ("ResNet-50 training", "ResNet-50"),
    "mlp": ("MLP training, 280 tiny kernels a step", "a step of 280 tiny kernels"),
    "launch": ("empty kernels, one after another", "empty kernels"),
    "threads": ("8 threads that launch empty kernels", "8 launching threads"),
    "copy": ("copies of 4 bytes to the device", "tiny copies"),
    "sm": ("kernels of 20 us", "kernels of 20 us"),
    "graph": ("a graph of 1000 empty kernels", "empty nodes of CUDA graphs"),
    "training": ("the three trainings in one process, from start to end", "from start to end"),
}
# Rows and columns of the README.
README_PROGRAMS = ("gpt", "resnet", "mlp", "launch")
TOOLS = {"gpuwhy": "gpuwhy", "gpuwhy-monitor": "`--mode monitor`", "nsys": "nsys `-t cuda`", "torch": "torch.profiler"}
# Mode, its option, its records, the tool that measures it, and the programs whose overheads are most representative.
MODES = [
    ("monitor", "--mode monitor", "ranges (NVTX), host threads, utilization", "gpuwhy-monitor",
     ("gpt", "resnet", "mlp", "launch")),
    ("light", "--mode light", "device work and the calls that launch, copy, wait or allocate", "gpuwhy",
     ("gpt", "resnet", "mlp", "launch", "graph")),
    ("", "--cuda-graph-trace node", "all nodes of CUDA graphs, also after ten seconds", "gpuwhy-nodes", ("graph",)),
    ("full", "--mode full", "every call, memory, synchronizations and events", "gpuwhy-full",
     ("gpt", "resnet", "mlp", "launch")),
]


def cost(measured: Measured, program: str, tool: str) -> str:
    """Added time; empty when it was not measured."""
    ratios = paired_ratios([row for row in measured.measurements if row["benchmark"] == program], tool)
    return added(ratios) if ratios else ""


def prices(measured: Measured, tool: str, programs: tuple[str, ...]) -> str:
    found = [f"{PROGRAMS[program][1]} {price}" for program in programs if (price := cost(measured, program, tool))]
    return ", ".join(found) or "not measured yet"


def rounds(measured: Measured) -> str:
    """Number of rounds of the medians: that of gpuwhy, which has the most."""
    return str(len({row["round"] for row in measured.measurements if row["tool"] == "gpuwhy" and row["time"]}))


def help_text(measured: Measured) -> str:
    """The MODES paragraph of `gpuwhy run --help`."""
    lines = [f"MODES, and what they cost on one {measured.machine['gpu']} ({measured.dates()}, docs/design/performance.md):"]
    for mode, option, records, tool, programs in MODES:
        indent = " " * 11
        price = f"costs {prices(measured, tool, programs)}"
        # The records on the line of the mode, the overhead below.
        if mode:
            lines.append(f"  {mode:7}  {records}")
        else:
            price = f"{option}: {records}; {price}"
        lines += textwrap.wrap(price, HELP_WIDTH, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines) + "\n"


def costs_table(measured: Measured) -> str:
    """The cost of each tool for the programs of the README; docs/design/performance.md has all programs and modes."""
    rows = measured.measurements
    tools = [tool for tool in TOOLS if any(row["tool"] == tool for row in rows)]
    lines = ["| program | bare | " + " | ".join(TOOLS[tool] for tool in tools) + " |", "|---" * (2 + len(tools)) + "|"]
    for program in README_PROGRAMS:
        bare = [row for row in rows if row["benchmark"] == program and row["tool"] == "none" and row["time"]]
        if bare:
            costs = " | ".join(cost(measured, program, tool) for tool in tools)
            time = shown(statistics.median(row["time"] for row in bare), bare[0]["unit"])
            lines.append(f"| {PROGRAMS[program][0]} | {time} | {costs} |")
    said = (f"Medians (range) of {rounds(measured)} rounds on one {measured.machine['gpu']}, {measured.dates()}, gpuwhy "
            f"{measured.machine['gpuwhy']}; each run is compared with the bare run of its round. Costs below zero are noise.")
    lines += ["", *textwrap.wrap(said, performance.WIDTH)]
    return "\n".join(lines) + "\n"


def replace_marked(text: str, name: str, contents: str) -> str:
    """Puts `contents` between `<!-- NAME, by benches/gpu/publish.py -->` and `<!-- end -->`.

    Raises ValueError when there is no such place.
    """
    begin = f"<!-- {name}, by benches/gpu/publish.py -->\n"
    pattern = re.compile(re.escape(begin) + r".*?(?=<!-- end -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"README.md has no part that begins with {begin.strip()}")
    return pattern.sub(lambda _: begin + contents, text, count=1)


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        measured = load(pathlib.Path(sys.argv[1]))
    except NotMergeable as error:
        print(error, file=sys.stderr)
        return 2
    readme = REPOSITORY / "README.md"
    text = replace_marked(readme.read_text(), "costs", costs_table(measured))
    for file, contents in [
            (readme, text), (REPOSITORY / "docs" / "design" / "performance.md", performance.document(measured)),
            (REPOSITORY / "docs" / "design" / "overhead.svg", plot.document(measured)),
            (REPOSITORY / "cli" / "args" / "prices.txt", help_text(measured))]:
        file.write_text(contents)
        print(file.relative_to(REPOSITORY))
    return 0


if __name__ == "__main__":
    sys.exit(main())
