"""Host activity while the device waited: the bottleneck, the kind of host time, and the line that is named.

Each program of `workloads/host_causes.py` keeps the device waiting for one reason and measures that time with its own
clock. In the same run, data loading must agree with it within 2 % of the step. For other host time the part that the
wait at the end of each step would have hidden is `sync_drain`, so the sum of both is compared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from harness import Check, Mode, Result, Suite, expect, skipped
from trace_report import single

# Maximum difference from the program's own clock, as a part of the step.
TOLERANCE = 0.02
# The causes named by the program must make up this part of the observed time.
CAUSE_PART = 0.5
SECONDS = "3"

CAUSES = (
    "none", "loader0", "loader1", "loader4", "loader8", "collate", "sleep", "files", "iterator", "queue", "gil", "gc", "python")


def one_cause(name: str) -> Check:
    def check(suite: Suite) -> Iterator[Result]:
        prefix = f"host.{name}"
        if name == "loader8" and (os.cpu_count() or 1) < 10:
            yield skipped(prefix, "fewer than 10 cores")
            return
        run = suite.run(f"host-{name}", suite.python("host_causes.py", name, "--seconds", SECONDS), Mode.VARIABLE)
        yield expect(f"{prefix}.exit", run.code == 0, run.ending())
        own = json.loads(run.stdout.strip().splitlines()[-1])
        trace = single(suite, run)
        if own["bottleneck"]:
            yield expect(f"{prefix}.bottleneck", trace.bottleneck == own["bottleneck"], f"expected {own['bottleneck']}, got {trace.bottleneck_line()}")

        loads = name.startswith("loader") or own["bottleneck"] == "data_loading"
        leaves = trace.steady_leaves()
        names = ("data_loading",) if loads else ("data_loading", "host_cpu", "host_blocked", "sync_drain")
        total = sum(leaves.values())
        reported = sum(leaves.get(leaf, 0) for leaf in names) / total if total else 0.0
        if own["causes"] and own["cause_ns"] is not None:
            truth = own["cause_ns"] / own["step_ns"]
            yield expect(
                f"{prefix}.share", abs(reported - truth) <= TOLERANCE,
                f"{'+'.join(names)} {reported:.2%} of the time, by its own clock {truth:.2%} of a step of "
                f"{own['step_ns'] / 1e6:.2f} ms")
        host = trace.report.get("host")
        if not own["causes"]:
            return
        if not host or not host["samples"]:
            yield expect(f"{prefix}.samples", False, f"nothing was seen: {trace.report['process']['notes']}")
            return
        seen = host["causes"]
        right, all_seen = sum(seen.get(cause, 0) for cause in own["causes"]), sum(seen.values())
        if own["bottleneck"]:
            yield expect(
                f"{prefix}.cause", right >= CAUSE_PART * all_seen > 0,
                f"expected {' or '.join(own['causes'])}, seen " + ", ".join(
                    f"{cause} {nanos / all_seen:.0%}" for cause, nanos in sorted(seen.items(), key=lambda item: -item[1])))
        if own["function"]:
            lines = host["lines"]
            top = f"{lines[0]['function']} ({lines[0]['file']}:{lines[0]['line']})" if lines else "no line"
            yield expect(f"{prefix}.line", bool(lines) and lines[0]["function"].split(".")[-1] == own["function"],
                         f"expected {own['function']}, got {top}")

    return Check(f"host.{name}", check)


def checks() -> list[Check]:
    return [one_cause(name) for name in CAUSES]
