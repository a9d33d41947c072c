"""Amount of recording: complete graphs, every call, nothing on the device, and reduction to bursts.

The overhead of each mode is measured by benches/gpu/overhead.py; this file checks only the results.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator

from harness import Check, Mode, Result, Suite, expect, skipped
from programs import programs
from trace_report import Trace, single

# Nodes of the graph that `programs` launches.
NODES = 1000
# Overhead of a node in a report's estimate, nanoseconds: `GRAPH_NODE_NANOS` of profiler_core::cost.
NODE_NANOS = 831
WHOLE = "[CUDA graph"
INCOMPLETE = "this CUPTI is older than 13.2 and records no whole graphs: give --other-cupti"


def with_whole_graphs(suite: Suite, level: str) -> dict[str, str]:
    """Variables for a level of graphs, with a libcupti that records complete ones if one was specified."""
    return {"GPUWHY_CUDA_GRAPH_TRACE": level, **({"GPUWHY_CUPTI_PATH": suite.other_cupti} if suite.other_cupti else {})}


def is_complete(trace: Trace) -> bool:
    """True if the run began with complete graphs."""
    return trace.report["cost"]["whole_graphs"]


def whole_graphs(suite: Suite) -> Iterator[Result]:
    """A launch of a graph of 1000 kernels is 1000 records, or one."""
    program = programs(suite)["graph"]
    nodes = single(suite, suite.run("modes-nodes", program.quiet(), Mode.VARIABLE, extra={"GPUWHY_CUDA_GRAPH_TRACE": "node"})).kernel_counts()
    run = suite.run("modes-graphs", program.quiet(), Mode.VARIABLE, extra=with_whole_graphs(suite, "graph"))
    if not is_complete(single(suite, run)):
        yield skipped("modes.graphs", INCOMPLETE)
        return
    whole = single(suite, run).kernel_counts()
    launches = sum(count for name, count in whole.items() if name.startswith(WHOLE))
    others = sum(whole.values()) - launches
    total = sum(nodes.values())
    yield expect("modes.graphs.records", launches > 0 and total - others == NODES * launches,
                 f"{launches} graphs and {others} others as a whole, {total} kernels by node")


def late_graphs(suite: Suite) -> Iterator[Result]:
    """Complete graphs in captures that begin long after graphs were instantiated: if this is enabled then, CUPTI 13.0
    crashes."""
    command = [str(suite.microbench), "graph", "1000", "2000", "--reps", "3", "--quiet-times"]
    extra = {**with_whole_graphs(suite, "graph"), "GPUWHY_DELAY": "1s", "GPUWHY_DURATION": "500ms"}
    run = suite.run("modes-late-graphs", command, Mode.VARIABLE, extra=extra)
    yield expect("modes.late_graphs.exit", run.code == 0, run.ending())
    if not is_complete(single(suite, run)):
        yield skipped("modes.late_graphs.whole", INCOMPLETE)
        return
    counts = single(suite, run).kernel_counts()
    launches = sum(count for name, count in counts.items() if name.startswith(WHOLE))
    yield expect("modes.late_graphs.whole", launches > 0 and sum(counts.values()) == launches, f"{launches} of {sum(counts.values())}")


def counted_nodes(suite: Suite) -> Iterator[Result]:
    """The number of nodes of a captured training step is known, and not too low, although two threads launch into the
    capture."""
    replays = 200
    command = suite.python("captured_step.py", "--replays", str(replays))
    work, cost = {}, {}
    for level in ("node", "graph"):
        run = suite.run(f"modes-counted-{level}", command, Mode.VARIABLE, extra=with_whole_graphs(suite, level))
        yield expect(f"modes.counted.{level}.exit", run.code == 0, run.ending())
        trace = single(suite, run)
        if level == "graph" and not is_complete(trace):
            yield skipped("modes.counted.nodes", INCOMPLETE)
            return
        work[level] = sum(trace.records(kind) for kind in ("kernels", "copies", "memsets"))
        cost[level] = trace.report["cost"]
    # A replay is one record or one for each node.
    nodes = 1 + (work["node"] - work["graph"]) / replays
    counted = cost["graph"]["unrecorded_nodes_estimate_ns"] / NODE_NANOS / replays
    yield expect("modes.counted.nodes", 20 < nodes <= counted <= 1.1 * nodes, f"{nodes:g} nodes a replay, {counted:g} were counted")


def full(suite: Suite) -> Iterator[Result]:
    """Every call: the same number of kernels, more calls, and no record that is not understood."""
    program = programs(suite)["mlp"]
    light = single(suite, suite.run("modes-light", program.quiet(), Mode.VARIABLE)).report
    run = suite.run("modes-full", program.quiet(), Mode.VARIABLE, extra={"GPUWHY_MODE": "full"})
    more = single(suite, run).report
    records = [report["completeness"]["records"] for report in (light, more)]
    yield expect("modes.full.kernels", records[0]["kernels"] == records[1]["kernels"], f"{[row['kernels'] for row in records]}")
    yield expect("modes.full.calls", records[1]["api_calls"] > 2 * records[0]["api_calls"], f"{[row['api_calls'] for row in records]}")
    yield expect("modes.full.unknown", more["completeness"]["unknown_kinds"] == 0, str(more["completeness"]["unknown_kinds"]))


def smi_utilization(stop: threading.Event, readings: list[float]) -> None:
    """Repeated nvidia-smi readings of the first device."""
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--id=0"]
    while not stop.wait(0.1):
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        if said.isdigit():
            readings.append(float(said) / 100)


def gauges(suite: Suite) -> Iterator[Result]:
    """Readings of a watched run agree with nvidia-smi, and with the records of the same program."""
    command = [str(suite.microbench), "sm", "20000", "--reps", "10", "--quiet-times"]
    stop, readings = threading.Event(), []
    thread = threading.Thread(target=smi_utilization, args=(stop, readings))
    if shutil.which("nvidia-smi"):
        thread.start()
    run = suite.run("modes-gauges", command, Mode.VARIABLE, extra={"GPUWHY_MODE": "monitor"})
    stop.set()
    if readings:
        thread.join()
    said = single(suite, run).report["utilization"]
    device = said["devices"][0] if said["devices"] else {}
    yield expect("modes.gauges.read", device.get("busy") is not None, str(said))
    if device.get("busy") is None:
        return
    if readings:
        # nvidia-smi also sees the program start and end; the largest of its averages over a second must be close.
        smi = max(readings)
        yield expect("modes.gauges.smi", device["busy"] <= smi + 0.05 and smi - device["busy"] < 0.3,
                     f"{device['busy']:.3f} here, at most {smi:.2f} in nvidia-smi, {len(readings)} readings")
    else:
        yield skipped("modes.gauges.smi", "no nvidia-smi")
    light = single(suite, suite.run("modes-gauges-light", command, Mode.VARIABLE)).report["devices"][0]
    computed = light["leaves"]["compute"] / light["window_ns"]
    # Readings begin with the context and averages take up to a second, so they include some idle time.
    yield expect("modes.gauges.light", abs(device["busy"] - computed) < 0.3, f"{device['busy']:.3f}, by records {computed:.3f}")
    counters = {name: value for name, value in device["counters"].items() if value is not None}
    if counters:
        yield expect("modes.gauges.counters", abs(counters["active"] - computed) < 0.3 and counters["sm_active"] > 0.5, str(counters))
    else:
        yield skipped("modes.gauges.counters", f"no hardware counters: {device['no_counters']}")


def watch(suite: Suite) -> Iterator[Result]:
    """No device records, a note about it, and no claims."""
    extra = {"GPUWHY_MODE": "monitor", "GPUWHY_REPORT": "summary"}
    run = suite.run("modes-watch", programs(suite)["launch"].quiet(), Mode.VARIABLE, extra=extra)
    yield expect("modes.monitor.exit", run.code == 0, run.ending())
    words = " ".join(run.stderr.split())
    said = "The run was only monitored" in words and "no GPU work was recorded" in words
    yield expect("modes.monitor.said", said, run.stderr.strip().splitlines()[-1][:200] if run.stderr.strip() else "nothing on stderr")


def budget(suite: Suite) -> Iterator[Result]:
    """Launches for some seconds under a budget that they exceed: bursts follow, the program does not notice."""
    command = [str(suite.microbench), "launch", "4000000", "--reps", "1", "--quiet-times"]
    run = suite.run("modes-budget", command, Mode.VARIABLE, extra={"GPUWHY_MAX_OVERHEAD": "1%"})
    yield expect("modes.budget.exit", run.code == 0, run.ending())
    trace = single(suite, run)
    steps = trace.report["cost"]["steps_down"]
    yield expect("modes.budget.steps", [step["to"] for step in steps] == ["auto"], str(steps))
    kernels = trace.report["completeness"]["records"]["kernels"]
    yield expect("modes.budget.kernels", 0 < kernels < 4_000_000, f"{kernels} kernels were recorded")


def checks() -> list[Check]:
    return [
        Check("modes.graphs", whole_graphs, exclusive=False),
        Check("modes.late_graphs", late_graphs, exclusive=False),
        Check("modes.counted", counted_nodes, exclusive=False),
        Check("modes.full", full, exclusive=False),
        Check("modes.monitor", watch, exclusive=False),
        Check("modes.gauges", gauges),
        Check("modes.budget", budget, exclusive=False),
    ]
