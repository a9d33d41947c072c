"""Collectives reported by NCCL's profiler plugin, joined with CUPTI's kernels, on two GPUs.

Numbers, sizes and bandwidth are compared with what the program did and measured itself. The overhead of the plugin is
measured alternately: without gpuwhy, with gpuwhy and without the plugin, with both.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator

from checks.ranks import device_count
from harness import Check, Mode, Result, Run, Suite, expect, skipped
from trace_report import Trace, Unreadable

# Share of the kernels that must be joined by the launch that NCCL reported.
JOINED = 0.999
# Maximum difference of a bandwidth from that of the program's own loop.
TOLERANCE = 0.03
# Rounds of the measurement of overhead.
TURNS = 5
# Maximum overhead of the plugin per operation, nanoseconds of the host (docs/guide/collectives.md).
COST = 500.0


# Variables that `gpuwhy run --nccl` sets.
PLUGIN = {"NCCL_PROFILER_PLUGIN": "libprof.so"}


def ranks_of(suite: Suite, name: str, *arguments: str, extra: dict[str, str] | None = None) -> tuple[Run, list[tuple[dict, Trace]]]:
    """Output of each rank, and its trace.

    Raises Unreadable if a rank left no line or no trace.
    """
    run = suite.run(f"nccl-{name}", suite.python("collectives.py", *arguments), Mode.COMMAND, extra={**PLUGIN, **(extra or {})})
    lines = said(run)
    files = {path.stem: path for path in run.traces()}
    ranks = []
    for line in lines:
        path = files.get(f"gpuwhy-{line['pid']}")
        if path is None:
            raise Unreadable(f"{name}: rank {line['rank']} left no trace, only {sorted(files)}")
        ranks.append((line, Trace(suite, path)))
    return run, ranks


def said(run: Run) -> list[dict]:
    """The lines of the ranks, in their order.

    Raises Unreadable if the program failed.
    """
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    if run.code != 0 or not lines:
        raise Unreadable(f"{run.ending()}: {run.stderr.strip()[-300:]}")
    return sorted(lines, key=lambda line: line["rank"])


def rows_of(trace: Trace) -> list[dict]:
    return trace.report.get("collectives", {}).get("rows", [])


def needs_two(suite: Suite, name: str) -> Result | None:
    devices = device_count(suite)
    return None if devices >= 2 else skipped(name, f"needs two GPUs, there are {devices}")


def mixed(suite: Suite) -> Iterator[Result]:
    if no := needs_two(suite, "nccl.mixed"):
        yield no
        return
    _, ranks = ranks_of(suite, "mixed", "mixed", "--rounds", "50")
    for line, trace in ranks:
        rank, rows, collectives = line["rank"], rows_of(trace), trace.report.get("collectives", {})
        kernels = sum(row["kernels"] for row in rows)
        version = tuple(line["nccl"])
        basis = "plugin" if version >= (2, 28) else "order" if version >= (2, 27) else "kernel_name"
        joined = sum(row["basis"][basis] for row in rows)
        yield expect(
            f"nccl.joined.{rank}", kernels > 0 and joined >= JOINED * kernels,
            f"NCCL {'.'.join(map(str, version))}: {joined} of {kernels} kernels by {basis}; without an operation "
            f"{collectives.get('kernels_without_operation')}, operations without a kernel "
            f"{collectives.get('operations_without_kernel')}, dropped {collectives.get('dropped')}")
        if basis == "kernel_name":
            continue
        for function, size in line["bytes"].items():
            found = [row for row in rows if row["function"] == function]
            operations = sum(row["operations"] for row in found)
            # A kernel that sends and receives does two operations.
            each = 2 if function == "send_receive" else 1
            expected = line["operations"][function] * each
            reported = sum(row["bytes"] for row in found)
            # The barrier at the end of the process group, and PyTorch's own operations, are all-reduces of a few bytes.
            more = 64 if function == "all_reduce" else 0
            yield expect(
                f"nccl.bytes.{function}.{rank}",
                0 <= reported - size <= more and 0 <= operations - expected <= more // 4,
                f"{operations} operations, {reported} bytes; the program did {expected} and {size}")


def bandwidth(suite: Suite) -> Iterator[Result]:
    if no := needs_two(suite, "nccl.bandwidth"):
        yield no
        return
    _, ranks = ranks_of(suite, "loop", "loop", "--rounds", "200", "--bytes", str(1 << 28))
    for line, trace in ranks:
        # The row of the large ones: a barrier is an all-reduce as well, in a row with another algorithm or almost no
        # time.
        rows = [row for row in rows_of(trace) if row["function"] == "all_reduce" and row["max_bytes"] == 1 << 28]
        found = max((row["bus_bytes_per_second"] for row in rows), default=0.0)
        own = line["bus_bytes_per_second"]
        yield expect(
            f"nccl.bandwidth.{line['rank']}", abs(found / own - 1) <= TOLERANCE,
            f"{found / 1e9:.1f} GB/s on the bus, by the loop's own events {own / 1e9:.1f}: {found / own - 1:+.2%}; {rows}")


def graph(suite: Suite) -> Iterator[Result]:
    if no := needs_two(suite, "nccl.graph"):
        yield no
        return
    for nodes in ("node", "graph"):
        _, ranks = ranks_of(suite, f"graph-{nodes}", "graph", "--rounds", "50", extra={"GPUWHY_CUDA_GRAPH_TRACE": nodes})
        for line, trace in ranks:
            collectives = trace.report.get("collectives", {})
            yield expect(
                f"nccl.graph.{nodes}.{line['rank']}",
                collectives.get("operations_captured", 0) >= (1 if line["nccl"] >= [2, 28] else 0)
                and collectives.get("dropped") == 0,
                f"captured {collectives.get('operations_captured')}, kernels of graphs without an operation "
                f"{collectives.get('graph_kernels_without_operation')}, of {line['replays']} replays")


def other(suite: Suite) -> Iterator[Result]:
    """Another plugin in the slot, and none: the program is unchanged, and the report states it."""
    if no := needs_two(suite, "nccl.other"):
        yield no
        return
    for value in ("libnccl-profiler-that-is-not-there.so", "none"):
        run, ranks = ranks_of(suite, f"other-{value[:4]}", "mixed", "--rounds", "5", extra={"NCCL_PROFILER_PLUGIN": value})
        for line, trace in ranks:
            rows, notes = rows_of(trace), " ".join(trace.report["process"]["notes"])
            yield expect(
                f"nccl.other.{value[:4]}.{line['rank']}",
                bool(rows) and all(row["basis"]["plugin"] == 0 for row in rows) and value in notes and run.code == 0,
                f"{run.ending()}, {sum(row['kernels'] for row in rows)} kernels by name; notes: {notes[:200]}")


def cost(suite: Suite) -> Iterator[Result]:
    """Host nanoseconds per operation: bare, with gpuwhy without the plugin, with both, alternately."""
    if no := needs_two(suite, "nccl.cost"):
        yield no
        return
    kinds: dict[str, tuple[Mode, dict[str, str]]] = {
        "bare": (Mode.BARE, {}), "without": (Mode.COMMAND, {"NCCL_PROFILER_PLUGIN": "none"}), "with": (Mode.COMMAND, PLUGIN)}
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in kinds}
    for turn in range(TURNS):
        for kind, (mode, extra) in kinds.items():
            run = suite.run(
                f"nccl-cost-{kind}-{turn}", suite.python("collectives.py", "small", "--rounds", "500"), mode, extra=extra)
            for size, nanos in said(run)[0]["nanoseconds"].items():
                found[kind].setdefault(size, []).append(nanos)
    for size in found["bare"]:
        bare, without, plugin = (statistics.median(found[kind][size]) for kind in ("bare", "without", "with"))
        more = sorted(a - b for a, b in zip(found["with"][size], found["without"][size]))
        suite.record("nccl-cost", {"bytes": int(size), "bare_ns": bare, "without_ns": without, "with_ns": plugin, "more_ns": more})
        yield expect(
            f"nccl.cost.{size}", statistics.median(more) <= max(COST, TOLERANCE * without),
            f"{size} bytes: bare {bare:.0f} ns an operation, gpuwhy without the plugin {without:.0f}, with it {plugin:.0f}; "
            f"the plugin {statistics.median(more):+.0f} ({more[0]:+.0f} to {more[-1]:+.0f}) in {TURNS} rounds")


def checks() -> list[Check]:
    return [
        Check("nccl.mixed", mixed), Check("nccl.bandwidth", bandwidth), Check("nccl.graph", graph), Check("nccl.other", other),
        Check("nccl.cost", cost, credit=240.0)]
