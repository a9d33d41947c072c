"""Publishes measurements in the documentation, the README and the help.

    python3 benches/gpu/publish.py benches/gpu/results/2026-11-30-{a,b}.json

Takes one run of overhead.py or two of one machine; prints for which rows and tools the intervals of two runs do not overlap.
Writes docs/design/performance.md, cli/args/prices.txt (the modes in `gpuwhy run --help`) and the marked part of README.md.
No number there is written by hand, so all of them are of the same measurements.
"""

from __future__ import annotations

import pathlib
import re
import sys
import textwrap

import performance
from measured import Cost, Measured, NotMergeable, load, merged, percent

# Width of the help, columns.
HELP_WIDTH = 118
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Rows and columns of the README.
README_ROWS = {
    "gpt": "GPT training", "mlp": "training of 280 tiny kernels a step", "decode_start": "decode step as one CUDA graph",
    "decode_later": "the same, after ten seconds", "serving_8_p50": "token of a server, 8 requests at a time"}
README_TOOLS = {"gpuwhy": "gpuwhy", "monitor": "`--mode monitor`", "nsys": "nsys `-t cuda`", "torch": "torch.profiler"}
# Names of rows in a list.
SHORT = {
    "gpt": "GPT", "resnet": "ResNet-50", "mlp": "a step of 280 tiny kernels", "launch": "empty kernels",
    "decode_start": "a decode step as one CUDA graph", "decode_later": "after ten seconds",
    "serving_8_p50": "a token of a server"}
# Mode, its records, the tool that measures it, and its rows.
MODES = [
    ("monitor", "ranges (NVTX), host threads, utilization", "monitor", ("gpt", "resnet", "mlp", "decode_start", "serving_8_p50")),
    ("light", "device work and the calls that launch, copy, wait or allocate", "gpuwhy",
     ("gpt", "resnet", "mlp", "launch", "decode_start", "decode_later", "serving_8_p50")),
    ("full", "every call, memory, synchronizations and events", "full", ("gpt", "resnet", "mlp", "launch")),
]


def prices(measured: Measured, tool: str, rows: tuple[str, ...]) -> str:
    found = [f"{SHORT[row]}: {cost}" for row in rows if (cost := measured.cost(row, tool))]
    return ", ".join(found) or "not measured yet"


def help_text(measured: Measured) -> str:
    """The MODES paragraph of `gpuwhy run --help`."""
    lines = [
        f"MODES, and what they cost on one {measured.machine['gpu']} ({measured.began[:10]}, docs/design/performance.md):"]
    for mode, records, tool, rows in MODES:
        # The records on the line of the mode, the cost below.
        indent = " " * 11
        lines.append(f"  {mode:7}  {records}")
        lines += textwrap.wrap(f"costs {prices(measured, tool, rows)}", HELP_WIDTH, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines) + "\n"


def phrase(cost: Cost | None) -> str:
    """A cost in a sentence; the end of its interval if none can be told."""
    if cost is None:
        return "an unknown time"
    if cost.is_none():
        return f"less than {percent(max(1.0, cost.interval[1])).removeprefix('+')}"
    return percent(cost.middle).removeprefix("+")


def sentence(measured: Measured) -> str:
    """What costs whom how much."""
    default = {row: phrase(measured.cost(row, "gpuwhy")) for row in ("gpt", "resnet", "mlp", "decode_start", "decode_later")}
    monitor = {row: phrase(measured.cost(row, "monitor")) for row in ("gpt", "mlp", "decode_start", "serving_8_p50", "serving_8_p99")}
    return (
        f"The default adds {default['gpt']} (GPT) and {default['resnet']} (ResNet-50) to trainings that keep the GPU busy, "
        f"{default['mlp']} to one of tiny kernels, and to a decode step as one CUDA graph {default['decode_start']} for the first "
        f"ten seconds, which are recorded, and {default['decode_later']} from then on. `--mode monitor`, without records of "
        f"kernels, adds {monitor['gpt']} to GPT, {monitor['mlp']} to tiny kernels, {monitor['decode_start']} to the decode step, "
        f"and to a token of the server {monitor['serving_8_p50']} (median) and {monitor['serving_8_p99']} (P99).")


def costs_table(measured: Measured) -> str:
    """The rows that decide; docs/design/performance.md has all programs and modes."""
    tools = [tool for tool in README_TOOLS if tool in measured.tools()]
    lines = ["| program | bare | " + " | ".join(README_TOOLS[tool] for tool in tools) + " |", "|---" * (2 + len(tools)) + "|"]
    for row, name in README_ROWS.items():
        bare = measured.bare(row)
        if bare is not None:
            costs = [str(measured.cost(row, tool) or "") for tool in tools]
            lines.append(f"| {' | '.join([name, performance.shown(bare, row), *costs])} |")
    said = (
        f"{sentence(measured)} Medians and intervals of {len(measured.turns('gpt'))} rounds on one {measured.machine['gpu']}, "
        f"{measured.began[:10]}, gpuwhy {measured.machine['gpuwhy']}; *no difference*: the interval contains 0 and "
        "ends below 5 %, or all of it is below 0; *unclear*: it contains 0 and more than 5 %. nsys has "
        "few turns, and torch.profiler starts anew for each.")
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
    if not 2 <= len(sys.argv) <= 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        runs = [load(pathlib.Path(file)) for file in sys.argv[1:]]
        measured = merged(runs)
        if reasons := [f"{file}: {why}" for file, run in zip(sys.argv[1:], runs) if (why := run.why_not())]:
            raise NotMergeable("\n".join(reasons))
    except NotMergeable as error:
        print(error, file=sys.stderr)
        return 2
    print(performance.agreement(runs))
    readme = REPOSITORY / "README.md"
    text = replace_marked(readme.read_text(), "costs", costs_table(measured))
    for file, contents in [
            (readme, text), (REPOSITORY / "docs" / "design" / "performance.md", performance.document(runs, measured)),
            (REPOSITORY / "cli" / "args" / "prices.txt", help_text(measured))]:
        file.write_text(contents)
        print(file.relative_to(REPOSITORY))
    return 0


if __name__ == "__main__":
    sys.exit(main())
