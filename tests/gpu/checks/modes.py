"""How much is recorded: graphs as a whole, every call, nothing of the device, and less by itself.

What each mode costs is measured by benches/gpu/overhead.py; here is only what comes out of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness import Check, Mode, Result, Suite, expect
from programs import programs
from trace_report import single

# Nodes of the graph that `programs` launches.
NODES = 1000
WHOLE = "[CUDA graph"


def whole_graphs(suite: Suite) -> Iterator[Result]:
    """A launch of a graph of 1000 kernels is 1000 records, or one."""
    program = programs(suite)["graph"]
    nodes = single(suite, suite.run("modes-nodes", program.quiet(), Mode.VARIABLE)).kernel_counts()
    run = suite.run("modes-graphs", program.quiet(), Mode.VARIABLE, extra={"GPUPROF_CUDA_GRAPHS": "graph"})
    whole = single(suite, run).kernel_counts()
    launches = sum(count for name, count in whole.items() if name.startswith(WHOLE))
    others = sum(whole.values()) - launches
    total = sum(nodes.values())
    yield expect("modes.graphs.records", launches > 0 and total - others == NODES * launches,
                 f"{launches} graphs and {others} others as a whole, {total} kernels by node")


def full(suite: Suite) -> Iterator[Result]:
    """Every call: as many kernels, more calls, and no record that is not understood."""
    program = programs(suite)["mlp"]
    light = single(suite, suite.run("modes-light", program.quiet(), Mode.VARIABLE)).report
    run = suite.run("modes-full", program.quiet(), Mode.VARIABLE, extra={"GPUPROF_MODE": "full"})
    more = single(suite, run).report
    records = [report["completeness"]["records"] for report in (light, more)]
    yield expect("modes.full.kernels", records[0]["kernels"] == records[1]["kernels"], f"{[row['kernels'] for row in records]}")
    yield expect("modes.full.calls", records[1]["api_calls"] > 2 * records[0]["api_calls"], f"{[row['api_calls'] for row in records]}")
    yield expect("modes.full.unknown", more["completeness"]["unknown_kinds"] == 0, str(more["completeness"]["unknown_kinds"]))


def watch(suite: Suite) -> Iterator[Result]:
    """Nothing of the device, said so, and nothing claimed."""
    run = suite.run("modes-watch", programs(suite)["launch"].quiet(), Mode.VARIABLE, extra={"GPUPROF_MODE": "watch"})
    yield expect("modes.watch.exit", run.code == 0, run.ending())
    said = "the run was only watched" in run.stderr and "0 kernels" in run.stderr
    yield expect("modes.watch.said", said, run.stderr.strip().splitlines()[-1][:200] if run.stderr.strip() else "nothing on stderr")


def budget(suite: Suite) -> Iterator[Result]:
    """Launches for some seconds under a budget that they exceed: recording ends, the program does not."""
    command = [str(suite.microbench), "launch", "4000000", "--reps", "1", "--quiet-times"]
    run = suite.run("modes-budget", command, Mode.VARIABLE, extra={"GPUPROF_MAX_OVERHEAD": "1%"})
    yield expect("modes.budget.exit", run.code == 0, run.ending())
    trace = single(suite, run)
    steps = trace.report["cost"]["steps_down"]
    yield expect("modes.budget.steps", [step["to"] for step in steps] == ["watch"], str(steps))
    kernels = trace.report["completeness"]["records"]["kernels"]
    yield expect("modes.budget.kernels", 0 < kernels < 4_000_000, f"{kernels} kernels were recorded")


def checks() -> list[Check]:
    return [
        Check("modes.graphs", whole_graphs, exclusive=False),
        Check("modes.full", full, exclusive=False),
        Check("modes.watch", watch, exclusive=False),
        Check("modes.budget", budget, exclusive=False),
    ]
