"""Makes the tables of predicted and real gains, and of steps without tracing, from the suite's measurements.

    python3 tests/gpu/gains_table.py [--docs tests/gpu/gains.md] gpu-suite-out/measured.jsonl [MORE FILES...]

If a program is in several files, the last one counts. --docs puts the tables between their markers. Exit status: 0 the
predictions are within their limits, 1 they are not, 3 there are too few to judge.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys

import gains
from harness import read_lines


def native_table(lines: list[dict]) -> str:
    """Additional time of programs with native stacks, the medians of their rounds."""
    rows = []
    for line in lines:
        medians = {setting: statistics.median(line[setting]) for setting in ("bare", "off", "auto")}
        rows.append([
            f"`{line['name']}`", *(f"{medians[setting]:.1f}" for setting in medians),
            f"{medians['off'] / medians['auto']:.3f}", f"{medians['bare'] / medians['auto']:.3f}"])
    header = ["program", "bare, steps/s", "without native stacks", "with", "time with over without", "with over bare"]
    return gains.table(header, rows)


def put(path: pathlib.Path, tables: dict[str, str]) -> None:
    """Replaces the text between the markers of each table.

    Raises ValueError if the file has no such markers.
    """
    text = path.read_text()
    for name, found in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        first, last = text.find(begin), text.find(end)
        if first < 0 or last < first:
            raise ValueError(f"{path} has no lines {begin.strip()} and {end}")
        text = f"{text[:first]}{begin}\n{found}\n{text[last:]}"
    path.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--docs", type=pathlib.Path, metavar="FILE", help="a page with markers that gets the tables")
    options = parser.parse_args()
    lines = [line for path in options.files for line in read_lines(path)]
    found = gains.gains(line for line in lines if line["kind"] == "intervention")
    by_name = {line["name"]: line for line in lines if line["kind"] == "intervention"}
    untraced = [line for line in lines if line["kind"] == "untraced"]
    untraced += [{**line, "name": f"{name}*"} for name, line in by_name.items()]
    causes = {line["name"]: line for line in lines if line["kind"] == "cause"}
    tables = {
        "gains": gains.gains_table(found) if found else "",
        "causes": gains.causes_table(list(causes.values())) if causes else "",
        "untraced": gains.untraced_table(untraced) if untraced else "",
        "native": native_table([line for line in lines if line["kind"] == "native_cost"])}
    tables = {name: text for name, text in tables.items() if text.count("\n") > 2}
    print(*tables.values(), sep="\n")
    if options.docs:
        put(options.docs, tables)
    summary = gains.summarize(found)
    print(f"Together: {summary.text()}.")
    if causes:
        print(f"Causes: {gains.judge(gains.gains(causes.values())).text()}.")
    judged = gains.is_calibrated(summary)
    return 3 if judged is None else 0 if judged else 1


if __name__ == "__main__":
    sys.exit(main())
