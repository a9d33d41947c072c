"""Reads the kept traces of a run again, with the present build, and judges its reports.

    python3 tests/gpu/rejudge.py --out NEW_FOLDER gpu-suite-out/measured.jsonl gpu-suite-out/traces

Gains and steps stay as measured on the device; bottleneck, lines, remedies and predictions are those of the present
report. NEW_FOLDER gets `measured.jsonl`, and `causes.md` and `remedies.md` for those that were measured.
"""

from __future__ import annotations

import argparse
import pathlib

import gains
import remedy_gains
from cause_table import CAUSES
from checks import remedies
from checks.causes import after_the_fix, named
from checks.interventions import row
from harness import REPOSITORY, Suite, read_lines
from remedy_table import REMEDIES
from trace_report import Trace


def judged(line: dict, folder: pathlib.Path, suite: Suite) -> dict:
    """The line of a cause or a remedy with the present report."""
    name = line["name"]
    trace = Trace(suite, folder / f"{name}.gpuwhy", "--recompute")
    rates = {"before": line["bare_before"], "after": line["bare_after"], "traced": [line["traced"]]}
    if line["kind"] == "remedy":
        return {**line, **remedies.row(name, REMEDIES[name], rates, trace)}
    case = CAUSES[name]
    found = row(name, case, rates, trace)
    return {**line, **found, **after_the_fix(found), **named(name, case, trace)}


def write(suite: Suite) -> None:
    """The tables, and the summary of each half."""
    causes, found = suite.recorded("cause"), suite.recorded("remedy")
    if causes:
        (suite.out / "causes.md").write_text(gains.causes_table(causes))
        for half, members in gains.halves(gains.gains(causes)).items():
            print(f"{half}: {gains.judge(members).text()}")
    if found:
        (suite.out / "remedies.md").write_text(remedy_gains.remedies_table(found))
        for half, answers in remedy_gains.halves(remedy_gains.answers(found)).items():
            print(f"{half}: {remedy_gains.summary(answers)}")


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
        known = {"cause": CAUSES, "remedy": REMEDIES}.get(line["kind"], {})
        if line.get("name") in known:
            suite.record(line["kind"], judged(line, options.traces, suite))
    write(suite)


if __name__ == "__main__":
    main()
