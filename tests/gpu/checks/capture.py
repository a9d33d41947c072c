"""Captures contain exactly the kernels of their range.

The program knows the number of kernels in each of its ranges, and keeps the device's queue full across their edges.
Several checks share the device, so that its work lags far behind the calls.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator

from harness import Check, Mode, Result, Suite, expect
from trace_report import Trace, single

RANGES = 10
# CUPTI holds records back for as long as the device lags, some 100 ms here. A buffer that it never returns would hold
# the marks for 2 s each time.
KEPT_MS = 1900
# Losses that indicate an unclean edge.
EDGES = ("launches_without_activity", "activities_without_launch")

WAYS: dict[str, dict[str, str]] = {
    "profiler": {"GPUWHY_CAPTURE_RANGE": "cudaProfilerApi", "GPUWHY_CAPTURE_RANGE_END": "repeat"},
    "nvtx": {
        "GPUWHY_CAPTURE_RANGE": "nvtx", "GPUWHY_NVTX_CAPTURE": "capture", "GPUWHY_CAPTURE_RANGE_END": "repeat"},
    # Ranges by command, in a program that waits for a profiler call that never comes.
    "socket": {"GPUWHY_CAPTURE_RANGE": "cudaProfilerApi"},
}


def capture(suite: Suite, trace: Trace, number: int) -> dict:
    """The report of one capture.

    Raises ValueError if the report command prints none.
    """
    run = suite.run(f"capture-{number}", [suite.gpuwhy, "report", trace.path, "--json", "--capture", str(number)])
    return json.loads(run.stdout)


def one_way(way: str, apart: float) -> Check:
    name = f"capture.{way}.{'apart' if apart else 'close'}"

    def check(suite: Suite) -> Iterator[Result]:
        command = suite.python(
            "captures.py", way, "--ranges", str(RANGES), "--gpuwhy", str(suite.gpuwhy), "--apart", str(apart))
        # The log shows when each capture was known to be complete, and what CUPTI held back until then.
        extra = {**WAYS[way], "NVTX_INJECTION64_PATH": str(suite.library), "GPUWHY_LOG": "debug"}
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
        kept = [int(nanos) for nanos in re.findall(r"CUPTI has held records back for (\d+) ns", run.stderr)]
        longest = max(kept, default=0) / 1e6
        yield expect(
            f"{name}.kept_back", longest < KEPT_MS,
            f"{len(kept)} flushes found records kept back by CUPTI, for {longest:.0f} ms at most")
        first, *others = said["begin_ms"]
        yield expect(
            f"{name}.begin", True,
            f"first {first:.1f} ms, others {statistics.median(others):.2f} ms; end {statistics.median(said['end_ms']):.2f} ms")

    return Check(name, check, exclusive=False)


def shutdown(suite: Suite) -> Iterator[Result]:
    """With `stop-shutdown` only the first range is recorded, the trace is closed, and the program continues unharmed.
    """
    command = suite.python("captures.py", "profiler", "--ranges", "3", "--apart", "0.5")
    run = suite.run("capture-shutdown", command, Mode.VARIABLE, {"GPUWHY_CAPTURE_RANGE": "cudaProfilerApi"})
    yield expect("capture.shutdown.exit", run.code == 0, run.ending())
    trace = single(suite, run)
    found = [row["kernels"] for row in trace.report["captures"]]
    yield expect("capture.shutdown.kernels", found == [100] and trace.end == "clean", f"captured {found}, end {trace.end}")


def checks() -> list[Check]:
    ways = [one_way(way, apart) for way in WAYS for apart in (0.0, 0.5)]
    return [*ways, Check("capture.shutdown", shutdown, exclusive=False)]
