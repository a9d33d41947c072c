"""Runs the checks and prints PASS, FAIL and SKIPPED lines, then `N passed, N failed, N skipped`.

Checks that measure no time run several at once, the others one after the other. A check that breaks is a FAIL and the
next one continues. Nothing is skipped silently: without a device, without nsys, or with no time left, a line says so.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

from checks import (
    auto, bottlenecks, capture, causes, counters, counts, cupti_sharing, division, docs, endings, endurance, exports, frameworks, graph_origins,
    host, inside, interventions, jobs, kernel_gains, kernels, known_kernels, launches, lessons, memory, memory_truth, modes, monitor,
    native_cost, nccl, nvtx, processes, python, ranks, real, remedies, serving, top, transparency, tries, truth, untraced, waiting, weight)
from harness import (
    REPOSITORY, SHORTEST_CHECK, BareRunFailed, Check, Mode, Result, Status, Suite, TimeUp, expect, find_nsys, skipped)
from trace_report import Unreadable

# Time that the suite needs to end its programs and to write its files, seconds; with --minutes no check runs from then
# on.
ENDING = 5.0
# Checks that use the result of `gpuwhy doctor --calibrate`: the overhead of tracing on this host.
CALIBRATED = ("interventions", "causes", "remedies", "untraced", "real", "native-cost")
CALIBRATION_LIMIT = 90.0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=REPOSITORY / "target" / "release", metavar="DIR",
                        help="folder with gpuwhy and libprof.so (default target/release)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-suite-out"), metavar="DIR",
                        help="folder for log.txt, results.json and the overhead table")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="checks whose name begins so; repeatable")
    parser.add_argument("--skip", action="append", default=[], metavar="NAME", help="leave these out; repeatable")
    parser.add_argument("--budget", type=float, default=3600.0, metavar="SECONDS", help="start no check after this time")
    parser.add_argument("--minutes", type=float, metavar="M", help="end what runs and start nothing after so many minutes: what "
                        "was found is kept, and the rest is said to have not run")
    parser.add_argument("--jobs", type=int, default=4, help="checks at the same time, where time is not measured")
    parser.add_argument("--together", type=int, metavar="N", help="checks whose programs load their libraries at the same time, "
                        "where they then take turns (default: 2 to 8, by kind)")
    parser.add_argument("--nsys", default=find_nsys(), help="nsys to count with (default: found, or GPUWHY_NSYS)")
    parser.add_argument("--nsys-libs", metavar="DIR", default=os.environ.get("GPUWHY_NSYS_LIBS"),
                        help="folder with libdw.so.1 and libelf.so.1 for nsys's importer")
    parser.add_argument("--other-cupti", metavar="FILE", help="a libcupti of CUDA 13.2 or later, with which frameworks are "
                        "traced with whole CUDA graphs (default: the one that gpuwhy finds)")
    parser.add_argument("--require-gpu", action="store_true", help="fail instead of skipping when there is no device")
    parser.add_argument("--list", action="store_true", help="print the names of the checks and stop")
    parser.add_argument("--keep", action="store_true", help="keep the folders of all runs")
    parser.add_argument("--traces", action="store_true", help="copy the traces of interventions, causes and remedies to OUT/traces")
    return parser.parse_args()


def overhead(budget_end: float, options: argparse.Namespace) -> Check:
    """The table of benches/gpu/overhead.py, in the remaining time."""

    def check(suite: Suite) -> Iterator[Result]:
        left = budget_end - time.monotonic()
        file = options.out.resolve() / "overhead" / "overhead.json"
        command = [
            sys.executable, str(REPOSITORY / "benches" / "gpu" / "overhead.py"), "--bin", str(suite.gpuwhy.parent), "--out", str(file),
            "--budget", str(int(min(left, 260)))]
        command += ["--nsys", suite.nsys] if suite.nsys else []
        command += ["--nsys-libs", suite.nsys_libraries] if suite.nsys_libraries else []
        run = suite.run("overhead", command, limit=left + 60)
        print(run.stdout if run.code == 0 else run.stderr)
        yield expect("overhead.table", run.code == 0, run.ending())

    return Check("overhead", check)


def build(suite: Suite) -> Result:
    try:
        run = suite.build_microbench()
    except FileNotFoundError as error:
        return expect("build.microbench", False, str(error))
    return expect("build.microbench", run.code == 0, run.ending() if run.code == 0 else run.stderr.strip()[-300:])


def calibrate(suite: Suite) -> Result:
    """Measures once the overhead of tracing on this host. Without the command the built-in overhead table is used."""
    try:
        run = suite.run("calibrate", [suite.gpuwhy, "doctor", "--calibrate"], limit=CALIBRATION_LIMIT)
    except OSError as error:
        return expect("calibrate", False, str(error))
    if run.code == 2 and "--calibrate" in run.stderr:
        return skipped("calibrate", "this gpuwhy has no `doctor --calibrate`; it uses its table of prices")
    said = (run.stdout.strip() or run.stderr.strip()).splitlines()
    return expect("calibrate", run.code == 0, f"{run.ending()} after {run.seconds:.1f} s: {said[-1] if said else ''}")


def perform(suite: Suite, check: Check) -> list[Result]:
    """All lines of one check; an exception becomes a FAIL and keeps the lines before it."""
    results: list[Result] = []
    began = time.monotonic()
    try:
        for result in check.function(suite):
            results.append(result)
    except TimeUp:
        results.append(skipped(check.name, "the time was up while it ran"))
    except BareRunFailed as error:
        results.append(expect(f"{check.name}.bare", False, str(error)))
    except Unreadable as error:
        results.append(expect(f"{check.name}.trace", False, str(error)))
    except Exception as error:
        results.append(expect(f"{check.name}.check", False, f"{type(error).__name__}: {error}"))
    for result in results:
        suite.log(str(result))
    seconds = time.monotonic() - began
    suite.log(f"# {check.name} took {seconds:.1f} s")
    suite.record("seconds", {"name": check.name, "seconds": round(seconds, 1)})
    print(*results, sep="\n", flush=True)
    return results


def perform_all(suite: Suite, selected: list[Check], budget_end: float, jobs: int) -> list[Result]:
    """Shared checks first, `jobs` at a time; then the exclusive ones. Results are written after each."""
    results: list[Result] = []

    def timed(check: Check) -> list[Result]:
        # With --minutes a check that does not end in time is cut off, so one that may end in time is started.
        credit = min(check.credit, SHORTEST_CHECK) if math.isfinite(suite.deadline) else check.credit
        if time.monotonic() + credit > budget_end:
            line = skipped(check.name, "the time budget is spent")
            print(line, flush=True)
            return [line]
        return perform(suite, check)

    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        for lines in pool.map(timed, [check for check in selected if not check.exclusive]):
            results += lines
            write_results(suite.out, results)
    for check in selected:
        if check.exclusive:
            results += timed(check)
            write_results(suite.out, results)
    return results


def has_device(suite: Suite) -> str | None:
    """None if the suite can run, otherwise what is missing."""
    for file in (suite.gpuwhy, suite.library):
        if not file.exists():
            return f"{file} does not exist: build with `cargo build --release --workspace`, or give --bin"
    try:
        run = suite.run("nvidia-smi", ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], Mode.BARE)
    except OSError:
        return "no CUDA device: nvidia-smi is not on the PATH"
    if run.code != 0:
        return f"no CUDA device: nvidia-smi: {run.ending()}"
    print(f"device: {run.stdout.strip().splitlines()[0]}", flush=True)
    return None


def write_results(out: pathlib.Path, results: list[Result]) -> None:
    lines = [{"status": result.status.value, "name": result.name, "detail": result.detail} for result in results]
    (out / "results.json").write_text(json.dumps(lines, indent=1) + "\n")


def end_programs(suite: Suite) -> None:
    """Ends the programs that still wait for their run."""
    for end in suite.at_end:
        try:
            end()
        except TimeUp:
            pass  # it was killed


def summarize(options: argparse.Namespace, results: list[Result]) -> int:
    """Writes results.json, repeats the failures, prints the last line and returns the exit status."""
    write_results(options.out, results)
    failures = [result for result in results if result.status is Status.FAIL]
    if failures:
        print("\nfailed:", *failures, sep="\n")
    found = collections.Counter(result.status for result in results)
    print(f"\n{found[Status.PASS]} passed, {found[Status.FAIL]} failed, {found[Status.SKIPPED]} skipped")
    return 1 if failures else 0


GROUPS = (
    transparency, counts, counters, endings, processes, bottlenecks, truth, interventions, causes, remedies, untraced, real,
    native_cost, host, kernels, nvtx, capture, waiting, exports, memory, memory_truth, modes, monitor, auto, launches, weight, lessons,
    cupti_sharing, ranks, nccl, jobs, endurance, frameworks, graph_origins, python, docs, kernel_gains, inside, known_kernels,
    division, top, serving, tries)


def everything(budget_end: float, options: argparse.Namespace) -> list[Check]:
    """All checks, in their order."""
    return [check for group in GROUPS for check in group.checks()] + [overhead(budget_end, options)]


def main() -> int:
    options = parse()
    deadline = time.monotonic() + 60 * options.minutes - ENDING if options.minutes else float("inf")
    budget_end = min(time.monotonic() + options.budget, deadline)
    all_checks = everything(budget_end, options)
    selected = [
        check for check in all_checks
        if (not options.only or check.name.startswith(tuple(options.only))) and not check.name.startswith(tuple(options.skip))]
    if options.list:
        print(*(check.name for check in selected), sep="\n")
        return 0
    if not selected:
        print(f"run.sh: no check is called {options.only}; see --list", file=sys.stderr)
        return 2

    options.out.mkdir(parents=True, exist_ok=True)
    suite = Suite(options.bin.resolve(), options.out.resolve(), options.nsys, options.nsys_libs, options.other_cupti)
    missing = has_device(suite)
    if missing:
        line = expect("suite", False, missing) if options.require_gpu else skipped("suite", missing)
        print(line)
        return summarize(options, [line])
    suite.deadline = deadline
    suite.selected, suite.together = [check.name for check in selected], options.together
    suite.keep_traces = options.traces
    results = []
    try:
        results.append(build(suite))
        print(results[0], flush=True)
        if any(name.startswith(CALIBRATED) and not name.startswith("remedies.try") for name in suite.selected):
            results.append(calibrate(suite))
            print(results[-1], flush=True)
    except TimeUp:
        pass  # each check reports that it did not run
    results += perform_all(suite, selected, budget_end, options.jobs)
    end_programs(suite)
    if options.keep:
        print("folders of the runs:", suite.scratch)
    else:
        shutil.rmtree(suite.scratch, ignore_errors=True)
    return summarize(options, results)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, subprocess.SubprocessError) as error:
        print(f"run.sh: {error}", file=sys.stderr)
        sys.exit(2)
