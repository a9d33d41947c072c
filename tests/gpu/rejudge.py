"""Reads the kept traces of a run again, with the present build, and judges its reports.

    python3 tests/gpu/rejudge.py --out NEW_FOLDER gpu-suite-out/measured.jsonl gpu-suite-out/traces

Gains and steps stay as measured on the device; bottleneck, lines and predictions are those of the present report.
NEW_FOLDER gets `measured.jsonl` and `causes.md`.
"""

from __future__ import annotations

import argparse
import pathlib

import gains
from cause_table import CAUSES
from checks.causes import after_the_fix, named
from checks.interventions import row
from harness import REPOSITORY, Suite, read_lines
from trace_report import Trace


def judged(line: dict, folder: pathlib.Path, suite: Suite) -> dict:
    name = line["name"]
    case = CAUSES[name]
    trace = Trace(suite, folder / f"{name}.gpuwhy", "--recompute")
    rates = {"before": line["bare_before"], "after": line["bare_after"], "traced": [line["traced"]]}
    found = row(name, case, rates, trace)
    return {**line, **found, **after_the_fix(found), **named(name, case, trace)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=pathlib.Path)
    parser.add_argument("traces", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--bin", type=pathlib.Path, default=REPOSITORY / "target" / "release")
    options = parser.parse_args()
    # A new folder: nothing measured is overwritten.
    options.out.mkdir(parents=True)
    suite = Suite(options.bin.resolve(), options.out.resolve(), None, None)
    for line in read_lines(options.measured):
        if line["kind"] == "cause":
            suite.record("cause", judged(line, options.traces, suite))
    rows = suite.recorded("cause")
    (suite.out / "causes.md").write_text(gains.causes_table(rows))
    for half, members in gains.halves(gains.gains(rows)).items():
        print(f"{half}: {gains.judge(members).text()}")


if __name__ == "__main__":
    main()
