"""Monitor mode with hardware samples: its overhead, and that its bottlenecks and shares agree with recorded runs.

Overheads are compared in rounds: in each, the bare program and the monitored one have one run, in rotating order.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator

from checks import counters
from checks.bottlenecks import EXAMPLES, promised_bottleneck
from harness import Check, Mode, Result, Suite, expect, skipped
from trace_report import single

ROUNDS = 5
# Student's t, 4 degrees of freedom, 97.5 %: intervals of 95 % for the mean of five rounds.
QUANTILE = 2.776
LIMIT = 1.005
# If bare runs vary by more than this, so small an overhead cannot be measured.
SCATTER = 0.05
SETTINGS = {"GPUWHY_MODE": "monitor", "GPUWHY_GPU_METRICS": "on"}
# Long enough for an interval: some eight seconds each on an H200.
TRAINING = {
    "gpt": ["gpt", "--steps", "250"],
    "mlp": ["mlp", "--steps", "2500"],
    "resnet": ["resnet", "--steps", "150"],
    "resnet_slow_loader": ["resnet", "--steps", "40", "--loader-ms", "4"],
}
SHARES = 0.9
SAME_GROUP = 0.9


def cost(suite: Suite) -> Iterator[Result]:
    """Time of a program with samples over the time without gpuwhy, by round."""
    for name, program in counters.programs(suite).items():
        ratios, bare = [], []
        for number in range(ROUNDS):
            times = {}
            for mode in (Mode.BARE, Mode.VARIABLE) if number % 2 else (Mode.VARIABLE, Mode.BARE):
                extra = SETTINGS if mode is Mode.VARIABLE else {}
                times[mode] = counters.time_of(suite.run(f"monitor-cost-{name}-{number}", program.command, mode, extra=extra))
            if min(times.values()) > 0:
                ratios.append(times[Mode.VARIABLE] / times[Mode.BARE])
                bare.append(times[Mode.BARE])
        if len(ratios) < ROUNDS:
            yield expect(f"monitor.cost.{name}", False, f"{len(ratios)} of {ROUNDS} rounds said a time")
            continue
        scatter = statistics.stdev(bare) / statistics.mean(bare)
        mean, error = statistics.mean(ratios), QUANTILE * statistics.stdev(ratios) / math.sqrt(ROUNDS)
        reported = f"{mean:.4f} +- {error:.4f} of the bare time, bare runs scatter by {scatter:.1%}"
        if scatter > SCATTER:
            yield skipped(f"monitor.cost.{name}", reported)
        else:
            yield expect(f"monitor.cost.{name}", mean <= LIMIT and mean + error < 2 * LIMIT - 1, reported)


def programs(suite: Suite) -> dict[str, list[str]]:
    """Programs whose bottleneck is known by construction."""
    found = {name: suite.python("train.py", *arguments) for name, arguments in TRAINING.items()}
    for path in sorted(EXAMPLES.glob("[0-9]*.py")):
        if promised_bottleneck(path.read_text(encoding="utf-8")):
            found[path.stem] = [sys.executable, str(path), "--seconds", "8"]
    return found


def bottlenecks(suite: Suite) -> Iterator[Result]:
    """The same cause as with records, or none; and the shares of recorded runs within the intervals."""
    same, reported, within, shares = 0, 0, 0, 0
    for name, command in programs(suite).items():
        recorded = single(suite, suite.run(f"monitor-light-{name}", command, Mode.VARIABLE)).report
        run = suite.run(f"monitor-{name}", command, Mode.VARIABLE, extra=SETTINGS)
        report = single(suite, run).report
        time = report.get("monitored")
        if time is None:
            yield skipped(f"monitor.bottleneck.{name}", f"no samples: {report['completeness'].get('counters')}")
            continue
        found, right = time["bottleneck"], recorded["bottleneck"]["cause"]
        reported += 1
        same += found == right
        causes = group_shares(recorded)
        inside = {cause: part["low"] <= causes.get(cause, 0.0) <= part["high"] for cause, part in time["causes"].items()}
        within, shares = within + sum(inside.values()), shares + len(inside)
        detail = ", ".join(f"{cause} {causes.get(cause, 0.0):.3f} in {part['low']:.3f} to {part['high']:.3f}"
                           for cause, part in time["causes"].items())
        yield expect(f"monitor.bottleneck.{name}", found in (right, "cannot_tell"),
                     f"{found}, by records {right}; not told {time['unresolved_ns'] / time['window_ns']:.2f}; {detail}")
    if reported:
        yield expect("monitor.bottlenecks.same", same >= SAME_GROUP * reported, f"{same} of {reported} programs")
        yield expect("monitor.shares.within", within >= SHARES * shares, f"{within} of {shares} shares")


# Causes by leaf: `Leaf::cause` of profiler_core::leaf, except that memsets and copies within a device run
# on the engine, which samples count as computation.
CAUSES = {
    "gpu_compute": ("compute", "communication", "copy_d2d", "memset"),
    "copy": ("copy_h2d_pageable", "copy_h2d_pinned", "copy_h2d_other", "copy_d2h_pageable", "copy_d2h_pinned",
             "copy_d2h_other", "copy_p2p", "copy_other"),
    "data_loading": ("data_loading",),
    "host_cpu": ("runtime_api", "host_cpu", "host_blocked"),
    "launch": ("dispatch", "launch_api", "launch_latency", "inter_kernel"),
    "sync": ("sync_drain",),
    "allocator": ("allocator",),
}


def group_shares(report: dict) -> dict[str, float]:
    """Shares of the time after start-up by cause, over all devices."""
    leaves: dict[str, int] = {}
    for device in report["devices"]:
        for leaf, nanos in device["steady_leaves"].items():
            leaves[leaf] = leaves.get(leaf, 0) + nanos
    total = sum(leaves.values()) or 1
    return {cause: sum(leaves.get(leaf, 0) for leaf in parts) / total for cause, parts in CAUSES.items()}


def engine(suite: Suite) -> Iterator[Result]:
    """The counter of the engine completes, and agrees with the records of the same program."""
    command = [str(suite.microbench), "sm", "20000", "--reps", "10", "--quiet-times"]
    light = single(suite, suite.run("monitor-engine-light", command, Mode.VARIABLE)).report["devices"][0]
    run = suite.run("monitor-engine", command, Mode.VARIABLE, extra=SETTINGS)
    yield expect("monitor.engine.exit", run.code == 0, run.ending())
    time = single(suite, run).report.get("monitored")
    if time is None:
        yield skipped("monitor.engine.busy", "no samples of hardware counters")
        return
    busy = light["steady_leaves"]["compute"] / max(1, sum(light["steady_leaves"].values()))
    width = time["busy_high"] - time["busy_low"]
    yield expect("monitor.engine.there", width < 0.05, f"busy {time['busy_low']:.3f} to {time['busy_high']:.3f}")
    yield expect("monitor.engine.busy", time["busy_low"] - 0.02 <= busy <= time["busy_high"] + 0.02, f"{busy:.3f} by records")


def checks() -> list[Check]:
    return [
        Check("monitor.engine", engine),
        Check("monitor.cost", cost, credit=240.0),
        Check("monitor.bottlenecks", bottlenecks, exclusive=False, credit=240.0),
    ]
