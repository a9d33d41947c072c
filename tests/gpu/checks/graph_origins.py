"""Work of CUDA graphs by the line and module that captured it: how much is joined, whether the time by module is that of the
same step run eagerly, what a capture and a replay cost, and that a recording that ends early has the same result.
"""

from __future__ import annotations

import json
import pathlib
import statistics
from collections.abc import Iterator

from harness import Check, Mode, Result, Run, Suite, expect, skipped
from trace_report import Trace, Unreadable

NOT_INSTALLED = 77
# Share of the operations of graphs whose node was seen, and share of their time that has a line, where all of a step runs
# on threads with a Python stack.
JOINED = 0.999
WITH_LINE = 0.95
# Relative difference of the time by module from the eager run, of modules with this share of the time.
TOLERANCE = 0.05
LEAST_SHARE = 0.03
# Time of a step at most, once recording has ended, relative to that with CUPTI waiting for a capture.
ENDED_COST = 1.03
PAIRS = 5
# Seconds of a run whose last third is not recorded: the decision takes ten.
LONG = 17.0
# Variables of each run of a decode step; `floor`: CUPTI waits for a capture.
SETTINGS = {
    "default": {"GPUWHY_CUDA_GRAPH_TRACE": "auto"}, "node": {"GPUWHY_CUDA_GRAPH_TRACE": "node"},
    "floor": {"GPUWHY_CAPTURE_RANGE": "command"}}

# Programs, and whether all of their work is captured on threads with a Python stack.
PROGRAMS = {
    "inference": (("graph_modules.py", "inference"), True),
    "training": (("graph_modules.py", "training"), False),
    "compiled": (("graph_modules.py", "compiled"), True),
    "resnet": (("graph_modules.py", "resnet"), True),
    "server": (("graph_server.py",), True),
    "jax": (("frameworks/programs.py", "jax.adam"), True),
}


def said(run: Run) -> dict:
    """The last line of a program.

    Raises Unreadable if it failed.
    """
    if run.code != 0:
        raise Unreadable(f"{run.ending()}: {run.stderr.strip()[-300:]}")
    return json.loads(run.stdout.splitlines()[-1])


def traced(suite: Suite, name: str, *arguments: str, extra: dict[str, str] | None = None) -> tuple[Run, Trace]:
    variables = {"GPUWHY_CUDA_GRAPH_TRACE": "node", **(extra or {})}
    # By the command, which also loads the NVTX part.
    run = suite.run(f"graph-origins-{name}", suite.python(*arguments), Mode.COMMAND, variables)
    if len(run.traces()) != 1:
        raise Unreadable(f"{name}: {len(run.traces())} traces, {run.ending()}: {run.stderr.strip()[-300:]}")
    return run, Trace(suite, run.traces()[0])


def modules(trace: Trace) -> dict[str, int]:
    """Nanoseconds by module."""
    sums: dict[str, int] = {}
    for row in trace.report["graph_origins"]["modules"]:
        if row["module"] is not None:
            sums[row["module"]] = sums.get(row["module"], 0) + row["total_ns"]
    return sums


def joined(suite: Suite) -> Iterator[Result]:
    for name, (command, has_stacks) in PROGRAMS.items():
        bare = suite.run(f"graph-origins-{name}-bare", suite.python(*command))
        if bare.code != 0:
            why = "not installed" if bare.code == NOT_INSTALLED else f"fails without gpuwhy: {bare.stderr.strip()[-300:]}"
            yield skipped(f"graph-origins.joined.{name}", why)
            continue
        run, trace = traced(suite, name, *command)
        origins = trace.report.get("graph_origins")
        if run.code != 0 or origins is None:
            yield expect(f"graph-origins.joined.{name}", False, f"{run.ending()}, graph_origins {origins}")
            continue
        parts = [origins[part] for part in ("with_place", "without_place", "unknown")]
        count, nanos = (sum(part[what] for part in parts) for what in ("count", "total_ns"))
        seen = 1.0 - origins["unknown"]["count"] / max(count, 1)
        line = origins["with_place"]["total_ns"] / max(nanos, 1)
        of_modules = sum(modules(trace).values()) / max(nanos, 1)
        suite.record("graph-origins", {"program": name, "operations": count, "joined": seen, "with_line": line, "in_module": of_modules})
        yield expect(
            f"graph-origins.joined.{name}", count > 0 and seen >= JOINED and (line >= WITH_LINE or not has_stacks),
            f"{seen:.2%} of {count} operations joined, {line:.1%} of their time with a line, {of_modules:.1%} in a module; "
            f"not placed {trace.losses().get('unplaced_graph_nodes', 0)}, dropped {trace.losses().get('dropped_graph_nodes', 0)}")


def by_module(suite: Suite) -> Iterator[Result]:
    steps = "300"
    run, graph = traced(suite, "modules", "graph_modules.py", "inference", "--steps", steps)
    _, eager = traced(suite, "modules-eager", "graph_modules.py", "inference", "--eager", "--steps", steps)
    said(run)
    rows = eager.report["ranges"]["rows"]
    ranges = {row["message"].removeprefix("module "): row["device_ns"] for row in rows if row["message"].startswith("module ")}
    times, total = modules(graph), sum(ranges.values())
    # The eager run has a few more steps, which warm up.
    scale = sum(times.get(name, 0) for name in ranges) / max(total, 1)
    for name, nanos in sorted(ranges.items()):
        if nanos < LEAST_SHARE * total:
            continue
        ratio = times.get(name, 0) / (nanos * scale)
        suite.record("graph-origins-module", {"module": name, "graph_ns": times.get(name, 0), "eager_ns": nanos, "ratio": ratio})
        yield expect(
            f"graph-origins.module.{name}", abs(ratio - 1.0) <= TOLERANCE,
            f"{ratio:.3f} of its share in the eager run ({times.get(name, 0) / 1e6:.2f} ms; {nanos / 1e6:.2f} ms eagerly)")


def cost(suite: Suite) -> Iterator[Result]:
    """Time of a decode step: bare, in the default once recording has ended, and with all nodes."""
    command = ("graph_modules.py", "decode", "--seconds", str(LONG))
    bare: list[dict] = []
    with_it: dict[str, list[dict]] = {name: [] for name in SETTINGS}
    traces: dict[str, pathlib.Path] = {}
    for _ in range(PAIRS):
        bare.append(said(suite.bare("graph-origins-decode", suite.python(*command))))
        for name, variables in SETTINGS.items():
            run = suite.run(f"graph-origins-decode-{name}", suite.python(*command), Mode.COMMAND, variables)
            with_it[name].append(said(run))
            if run.traces():
                traces[name] = run.traces()[0]
    steps = {name: [row["step_ms"] for row in rows] for name, rows in [*with_it.items(), ("bare", bare)]}
    text = {}
    for name in SETTINGS:
        ratios = [one / base for one, base in zip(steps[name], steps["bare"])]
        suite.record("graph-origins-cost", {"setting": name, "ratios": ratios})
        text[name] = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    above = statistics.median(one / base for one, base in zip(steps["default"], steps["floor"]))
    part, every = (Trace(suite, traces[name]) for name in ("default", "node"))
    down = [step["to"] for step in part.report["cost"]["steps_down"]]
    bursts = (part.report.get("bursts") or {"rows": []})["rows"]
    yield expect(
        "graph-origins.ended", down == ["auto"] and not bursts and above <= ENDED_COST,
        f"a step relative to bare: {text['default']} once recording has ended, {text['node']} with all nodes, {text['floor']} "
        f"with CUPTI waiting for a capture; {above:.3f} of that; {PAIRS} pairs, {len(bursts)} bursts, steps down {down}")
    whole, parts = modules(every), modules(part)
    off = max((abs(parts.get(name, 0) / sum(parts.values()) / (nanos / sum(whole.values())) - 1.0)
               for name, nanos in whole.items() if nanos >= LEAST_SHARE * sum(whole.values())), default=1.0)
    yield expect(
        "graph-origins.ended.result", every.bottleneck == part.bottleneck and off <= TOLERANCE,
        f"bottleneck {part.bottleneck}, {every.bottleneck} with all nodes; shares of modules within {off:.1%}")
    yield expect(
        "graph-origins.capture", True,
        f"capture {statistics.median(row['first_ms'] for row in bare):.1f} ms bare, "
        f"{statistics.median(row['first_ms'] for row in with_it['node']):.1f} ms under gpuwhy")


def checks() -> list[Check]:
    return [
        Check("graph-origins.joined", joined, exclusive=False, credit=240.0),
        Check("graph-origins.module", by_module, exclusive=False, credit=60.0),
        Check("graph-origins.cost", cost, credit=440.0)]
