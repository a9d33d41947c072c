"""Makes the tables of predicted and real gains, and of steps without tracing, from what the suite measured.

    python3 tests/gpu/gains_table.py gpu-suite-out/measured.jsonl [MORE FILES...]

Of a program that is in several files, the last one counts. Exit status: 0 the predictions keep what they promise, 1 they do
not, 3 there are too few to tell.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

import gains
from harness import read_lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    lines = [line for path in parser.parse_args().files for line in read_lines(path)]
    found = gains.gains(line for line in lines if line["kind"] == "intervention")
    if found:
        print(gains.gains_table(found))
    interventions = {f"{line['name']} (interventions)": line for line in lines if line["kind"] == "intervention"}
    untraced = [line for line in lines if line["kind"] == "untraced"]
    untraced += [{**line, "name": name} for name, line in interventions.items()]
    print(gains.untraced_table(untraced))
    summary = gains.summarize(found)
    print(f"Together: {summary.text()}.")
    judged = gains.is_calibrated(summary)
    return 3 if judged is None else 0 if judged else 1


if __name__ == "__main__":
    sys.exit(main())
