"""Counters of kernels from samples, compared with those measured in their launches, and with Nsight Compute."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import statistics
from collections.abc import Iterator, Sequence

import gains
from checks.counters import VARIABLE
from checks.kernels import find_ncu
from harness import Check, Mode, Result, Suite, expect, skipped
from trace_report import Trace, single

SECONDS = "6"
# Maximum medians of the differences: percentage points, and parts of the value.
LIVE_LIMIT, RANGE_LIMIT = 3.0, 0.01
# Time that measuring the five kernels of a training may add, seconds.
ADDED_SECONDS = 5.0
LIMIT = 150.0
# Minimum number of kernels for a median.
FEWEST = 5
ROOFS = {
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "dram": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "l2": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "issue": "sm__inst_executed.avg.pct_of_peak_sustained_elapsed"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One kernel. Uses are those of `roof`, in percent, and None if unknown."""

    name: str
    microseconds: float
    roof: str
    live: float | None
    error: float | None
    measured: float
    ncu: float | None


def rows(measured: Sequence[dict], live: Sequence[dict], ncu: dict[str, dict[str, float]]) -> list[Row]:
    """Measured kernels, with the values of samples and ncu for the same unit. Names shared by several shapes are left
    out: samples distinguish shapes, the table of a report sums them by name."""
    names = [kernel["name"] for kernel in measured]
    limits = {kernel["name"]: kernel["limits"] for kernel in live if kernel.get("limits")}
    found = []
    for kernel in measured:
        if kernel["outcome"] != "measured" or names.count(kernel["name"]) > 1 or not kernel["roofs"]:
            continue
        own = limits.get(kernel["name"]) or {}
        reported = own.get("roof") if own.get("own") else None
        roof = reported or kernel["nearest_roof"]
        if roof not in kernel["roofs"]:
            continue
        found.append(Row(
            kernel["name"], (kernel["duration_ns"] or 0) / 1e3, roof, 100 * own["used"] if reported else None,
            100 * own["standard_error"] if reported else None, 100 * kernel["roofs"][roof],
            ncu.get(kernel["symbol"], {}).get(ROOFS[roof])))
    return found


def table(found: Sequence[Row]) -> str:
    def text(value: float | None) -> str:
        return "" if value is None else f"{value:.1f}"

    lines = [
        [f"`{row.name[:60]}`", f"{row.microseconds:.1f}", row.roof, text(row.live), text(row.error), text(row.measured), text(row.ncu)]
        for row in found]
    return gains.table(["kernel", "us", "unit", "by samples, %", "standard error", "measured, %", "ncu, %"], lines)


def live_points(found: Sequence[Row]) -> list[float]:
    return [abs(row.live - row.measured) for row in found if row.live is not None]


def ncu_parts(found: Sequence[Row]) -> list[float]:
    return [abs(row.measured / row.ncu - 1) for row in found if row.ncu]


def by_ncu(suite: Suite, ncu: str) -> dict[str, dict[str, float]]:
    """Mangled name -> metric -> value, of one launch of each kernel after the first step."""
    command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "mangled", "--clock-control", "none",
               "--cache-control", "none", "--launch-skip", "60", "--launch-count", "20", "--metrics", ",".join(ROOFS.values()),
               *suite.python("known_kernels.py", "1")]
    run = suite.run("known-ncu", command, limit=LIMIT)
    text = run.stdout[run.stdout.find('"ID"'):] if '"ID"' in run.stdout else ""
    values = list(csv.DictReader(io.StringIO(text)))[1:]
    number = lambda cell: float(cell.replace(",", "")) if cell else float("nan")
    return {row["Kernel Name"]: {name: number(row.get(name, "")) for name in ROOFS.values()} for row in values}


def measured_of(suite: Suite, name: str, options: Sequence[str], command: Sequence[str]) -> tuple[list[dict], float, str]:
    """Kernels that `gpuwhy kernels` measured, its duration, and its stderr output."""
    run = suite.run(name, [suite.gpuwhy, "kernels", *options, "--json", "--", *command], limit=LIMIT)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{") and "measured" in line]
    return json.loads(lines[-1])["measured"] if lines else [], run.seconds, run.stderr.strip()[-300:]


def has_torch(suite: Suite) -> bool:
    return suite.run("torch", ["python3", "-c", "import torch"]).code == 0


def live(suite: Suite) -> Iterator[Result]:
    """Fourteen kernels, measured in three ways."""
    prefix = "kernels.live"
    if not has_torch(suite):
        yield skipped(prefix, "PyTorch is not installed")
        return
    command = suite.python("known_kernels.py", SECONDS)
    run = suite.run("known-live", command, Mode.VARIABLE, {VARIABLE: "on:1000"})
    yield expect(f"{prefix}.runs", run.code == 0, f"{run.ending()}: {run.stderr.strip()[-200:] if run.code else run.stdout.strip()}")
    if run.code != 0:
        return
    trace: Trace = single(suite, run)
    measured, _, said = measured_of(suite, "known-ranges", ["--top", "16"], command)
    if measured and {kernel["outcome"] for kernel in measured} <= {"busy", "refused"}:
        yield skipped(prefix, f"counters are not to be had here: {measured[0]['reason']}")
        return
    ncu = find_ncu()
    found = rows(measured, [kernel for device in trace.report["devices"] for kernel in device["kernels"]], by_ncu(suite, ncu) if ncu else {})
    suite.record("known_kernels", {"rows": [dataclasses.asdict(row) for row in found]})
    text = table(found)
    (suite.out / "known_kernels.md").write_text(text)
    print(text, flush=True)
    yield from judged(prefix, found, ncu, said)


def judged(prefix: str, found: Sequence[Row], ncu: str | None, said: str) -> Iterator[Result]:
    points, parts = live_points(found), ncu_parts(found)
    middle = statistics.median(points) if points else float("inf")
    yield expect(
        prefix, len(points) >= FEWEST and middle <= LIVE_LIMIT,
        f"median difference of {len(points)} kernels {middle:.1f} points, limit {LIVE_LIMIT}, largest {max(points, default=0):.1f}"
        f"{f'; {said}' if not found else ''}")
    if ncu is None:
        yield skipped(f"{prefix}.ncu", "no ncu: name one by GPUWHY_NCU")
        return
    middle = statistics.median(parts) if parts else float("inf")
    yield expect(
        f"{prefix}.ncu", len(parts) >= FEWEST and middle <= RANGE_LIMIT,
        f"median difference of {len(parts)} kernels {middle:.2%}, limit {RANGE_LIMIT:.0%}")


def five(suite: Suite) -> Iterator[Result]:
    """Time to measure the five most relevant kernels of a training, compared with ncu."""
    prefix = "kernels.five"
    if not has_torch(suite):
        yield skipped(prefix, "PyTorch is not installed")
        return
    command = suite.python("train.py", "gpt", "--steps", "150", "--repetitions", "1")
    bare = suite.bare("five", command)
    measured, seconds, said = measured_of(suite, "five-kernels", [], command)
    outcomes = [kernel["outcome"] for kernel in measured]
    if outcomes and set(outcomes) <= {"busy", "refused"}:
        yield skipped(prefix, f"counters are not to be had here: {measured[0]['reason']}")
        return
    added = seconds - bare.seconds
    theirs = ""
    if ncu := find_ncu():
        run = suite.run(
            "five-ncu", [ncu, "--set", "full", "--launch-skip", "8000", "--launch-count", "5", *command], limit=LIMIT)
        theirs = f"; ncu --set full of five launches: {run.ending()}, {run.seconds - bare.seconds:.1f} s more"
    suite.record("five_kernels", {"bare": bare.seconds, "seconds": seconds, "outcomes": outcomes})
    yield expect(
        prefix, outcomes == ["measured"] * 5 and added <= ADDED_SECONDS,
        f"{outcomes}; {bare.seconds:.1f} s without, {added:+.1f} s with, limit {ADDED_SECONDS} s{theirs}{f'; {said}' if not outcomes else ''}")


def checks() -> list[Check]:
    return [Check("kernels.live", live, credit=90.0), Check("kernels.five", five, credit=60.0)]
