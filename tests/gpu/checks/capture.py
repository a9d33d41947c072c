"""Captures hold exactly the kernels of their range, and a program in which none has begun runs at full speed.

The program knows the number of kernels in each of its ranges, and keeps the device's queue full across their edges. What
waiting for a capture costs is the ratio of two runs that take turns; the medians of the ratios are printed either way.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator

from harness import Check, Mode, Result, Suite, expect
from trace_report import Trace, single

RANGES = 10
# Rounds of the comparison; within each the two runs are neighbours in time.
ROUNDS = 5
# What waiting for a capture may cost. Neither the subscriber alone nor a timer of 0.1 s could be told from noise
# (docs/OVERHEAD.md), so this is the noise.
DORMANT_LIMIT = 1.03
# Losses that say that an edge was not clean.
EDGES = ("launches_without_activity", "activities_without_launch")

WAYS: dict[str, dict[str, str]] = {
    "profiler": {"GPUPROF_CAPTURE_RANGE": "cudaProfilerApi", "GPUPROF_CAPTURE_RANGE_END": "repeat"},
    "nvtx": {
        "GPUPROF_CAPTURE_RANGE": "nvtx", "GPUPROF_NVTX_CAPTURE": "capture", "GPUPROF_CAPTURE_RANGE_END": "repeat"},
    # Ranges by command, in a program that waits for a profiler call that never comes.
    "socket": {"GPUPROF_CAPTURE_RANGE": "cudaProfilerApi"},
}


def capture(suite: Suite, trace: Trace, number: int) -> dict:
    """The report of one capture.

    Raises ValueError when the report command gives none.
    """
    run = suite.run(f"capture-{number}", [suite.gpuprof, "report", trace.path, "--json", "--capture", str(number)])
    return json.loads(run.stdout)


def one_way(way: str, apart: float) -> Check:
    name = f"capture.{way}.{'apart' if apart else 'close'}"

    def check(suite: Suite) -> Iterator[Result]:
        command = suite.python(
            "captures.py", way, "--ranges", str(RANGES), "--gpuprof", str(suite.gpuprof), "--apart", str(apart))
        extra = {**WAYS[way], "NVTX_INJECTION64_PATH": str(suite.library)}
        run = suite.run(name, command, Mode.VARIABLE, extra)
        yield expect(f"{name}.exit", run.code == 0, run.ending() if run.code == 0 else run.stderr.strip()[-200:])
        said = json.loads(run.stdout.strip().splitlines()[-1])
        trace = single(suite, run)
        found = [row["kernels"] for row in trace.report["captures"]]
        yield expect(f"{name}.kernels", found == said["kernels"], f"captured {found}, launched {said['kernels']}")
        reports = [capture(suite, trace, row["number"]) for row in trace.report["captures"]]
        names = {kernel["name"] for report in reports for device in report["devices"] for kernel in device["kernels"]}
        yield expect(f"{name}.names", len(names) == 1, f"kernels of {len(names)} names: {sorted(names)[:3]}")
        edges = {edge: sum(report["completeness"][edge] for report in reports) for edge in EDGES}
        yield expect(f"{name}.clean", not any(edges.values()), str(edges))
        losses = trace.losses()
        yield expect(f"{name}.nothing_lost", not losses, str(losses))
        first, *others = said["begin_ms"]
        yield expect(
            f"{name}.begin", True,
            f"first {first:.1f} ms, others {statistics.median(others):.2f} ms; end {statistics.median(said['end_ms']):.2f} ms")

    return Check(name, check, exclusive=False)


def shutdown(suite: Suite) -> Iterator[Result]:
    """With `stop-shutdown` the first range alone is there, the trace is closed, and the program goes on unharmed."""
    command = suite.python("captures.py", "profiler", "--ranges", "3", "--apart", "0.5")
    run = suite.run("capture-shutdown", command, Mode.VARIABLE, {"GPUPROF_CAPTURE_RANGE": "cudaProfilerApi"})
    yield expect("capture.shutdown.exit", run.code == 0, run.ending())
    trace = single(suite, run)
    found = [row["kernels"] for row in trace.report["captures"]]
    yield expect("capture.shutdown.kernels", found == [100] and trace.end == "clean", f"captured {found}, end {trace.end}")


def dormant(suite: Suite) -> Iterator[Result]:
    """A program in which no capture begins, against the bare one, taking turns."""
    programs = {
        "mlp": (suite.python("train.py", "mlp", "--steps", "300"), r'"ms_per_step": ([\d.]+)', "ms/step"),
        "launch": ([str(suite.microbench), "launch", "100000"], r"time_per_operation_ns=([\d.]+)", "ns/kernel"),
    }
    for name, (command, figure, unit) in programs.items():
        bare_times, ratios = [], []
        for number in range(ROUNDS):
            times: dict[Mode, float] = {}
            # The order changes, so that neither is always the one after the other.
            for mode in [Mode.BARE, Mode.VARIABLE][:: 1 if number % 2 else -1]:
                extra = {"GPUPROF_CAPTURE_RANGE": "cudaProfilerApi"} if mode is Mode.VARIABLE else None
                run = suite.run(f"dormant-{name}-{mode.value}-{number}", command, mode, extra)
                match = re.search(figure, run.stdout)
                if run.code != 0 or not match:
                    yield expect(f"capture.dormant.{name}", False, f"{mode.value}: {run.ending()}: {run.stderr.strip()[-150:]}")
                    return
                times[mode] = float(match[1])
                if mode is Mode.VARIABLE and run.traces():
                    yield expect(f"capture.dormant.{name}.no_file", False, "a trace was left though nothing was captured")
            bare_times.append(times[Mode.BARE])
            ratios.append(times[Mode.VARIABLE] / times[Mode.BARE])
        ratio = statistics.median(ratios)
        yield expect(
            f"capture.dormant.{name}", ratio <= DORMANT_LIMIT,
            f"{ratio:.3f} of bare ({min(ratios):.3f} .. {max(ratios):.3f}, {ROUNDS} rounds; "
            f"bare {statistics.median(bare_times):.4g} {unit})")


def checks() -> list[Check]:
    ways = [one_way(way, apart) for way in WAYS for apart in (0.0, 0.5)]
    return [*ways, Check("capture.shutdown", shutdown, exclusive=False), Check("capture.dormant", dormant)]
