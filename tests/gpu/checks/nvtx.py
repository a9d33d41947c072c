"""Ranges and marks that a program makes through NVTX are all in the trace, and cost little.

The program counts its calls, nsys counts them in a separate run, and the trace must agree with both.
"""

from __future__ import annotations

import collections
import contextlib
import json
import sqlite3
from collections.abc import Iterator

import oracles
from harness import Check, Mode, Result, Run, Suite, expect, skipped
from oracles import NoCount
from trace_report import Trace, single

# nsys's numbers for kinds of NVTX events.
NSYS_KINDS = {59: "push", 60: "start", 34: "mark"}
# Our names for ranges in the report.
STYLES = {"PushPop": "push", "StartEnd": "start"}

# Maximum overhead of a range, nanoseconds for a push and its pop: five times the value measured without a GPU.
PAIR_LIMIT = 1000.0


def events(counts: dict[str, int]) -> int:
    """Number of records of these ranges and marks."""
    return sum(count * (1 if key.startswith("mark ") else 2) for key, count in counts.items())


def ranges_of(trace: Trace) -> collections.Counter[str]:
    """Ranges by kind and text, as the program prints them. Marks have no duration and no row."""
    counts: collections.Counter[str] = collections.Counter()
    for row in (trace.report.get("ranges") or {}).get("rows", []):
        if row["style"] in STYLES:
            counts[f"{STYLES[row['style']]} {row['message']}"] += row["host"]["count"]
    return counts


def nsys_counts(suite: Suite, name: str, command: list[str]) -> collections.Counter[str]:
    """Ranges and marks in nsys's export.

    Raises NoCount if nsys provides none.
    """
    database = oracles.nsys_database(suite, name, command, what="cuda,nvtx")
    counts: collections.Counter[str] = collections.Counter()
    with contextlib.closing(sqlite3.connect(database)) as connection:
        try:
            rows = connection.execute(
                "SELECT e.eventType, coalesce(e.text, s.value), count(*) FROM NVTX_EVENTS e "
                "LEFT JOIN StringIds s ON s.id = e.textId GROUP BY 1, 2").fetchall()
        except sqlite3.OperationalError as error:
            raise NoCount(f"no NVTX_EVENTS in nsys's export: {error}") from error
    for kind, text, count in rows:
        if kind in NSYS_KINDS:
            counts[f"{NSYS_KINDS[kind]} {text}"] += count
    return counts


def compare(name: str, trace: Trace, said: dict[str, int], by: str) -> Iterator[Result]:
    ours = ranges_of(trace)
    wanted = collections.Counter({key: count for key, count in said.items() if not key.startswith("mark ")})
    differing = sorted(key for key in ours | wanted if ours[key] != wanted[key])
    detail = "; ".join(f"{key}: gpuwhy {ours[key]}, {by} {wanted[key]}" for key in differing[:4])
    yield expect(f"{name}.ranges", not differing, detail or f"{len(ours)} texts, {sum(ours.values())} ranges")
    records = trace.records("ranges")
    yield expect(f"{name}.events", records == events(said), f"gpuwhy {records}, {by} {events(said)}")


def printed(run: Run) -> dict:
    return json.loads(run.stdout.strip().splitlines()[-1])


def check(suite: Suite, name: str, command: list[str]) -> Iterator[Result]:
    bare = suite.bare(name, command)
    run = suite.run(f"{name}-ranges", command, Mode.COMMAND)
    yield expect(f"nvtx.{name}.exit", run.code == 0, run.ending())
    trace, said = single(suite, run), printed(run)
    yield from compare(f"nvtx.{name}.program", trace, said["counts"], "the program")
    dropped = trace.completeness["dropped_ranges"]
    yield expect(f"nvtx.{name}.nothing_dropped", dropped == 0, f"{dropped} events dropped")
    more = said["pair_ns"] - printed(bare)["pair_ns"]
    yield expect(
        f"nvtx.{name}.cost", more <= PAIR_LIMIT,
        f"{more:+.0f} ns for a push and its pop: {said['pair_ns']:.0f} ns, {printed(bare)['pair_ns']:.0f} ns without a tool")
    try:
        counts = nsys_counts(suite, name, command)
    except NoCount as reason:
        yield skipped(f"nvtx.{name}.nsys", str(reason))
    else:
        yield from compare(f"nvtx.{name}.nsys", trace, counts, "nsys")


def torch(suite: Suite) -> Iterator[Result]:
    """torch.cuda.nvtx on several threads, and the nvtx package if it is installed."""
    yield from check(suite, "torch", suite.python("ranges.py"))


def header(suite: Suite) -> Iterator[Result]:
    """A C++ program with NVTX's own header."""
    program = suite.scratch / "ranges"
    try:
        built = suite.compile(suite.workloads / "ranges.cu", program)
    except FileNotFoundError as error:
        yield skipped("nvtx.header", str(error))
        return
    if built.code != 0:
        yield skipped("nvtx.header", f"not compiled: {built.stderr.strip()[-200:]}")
        return
    yield from check(suite, "header", [str(program)])


def variable(suite: Suite) -> Iterator[Result]:
    """With CUDA_INJECTION64_PATH alone either the ranges are recorded or the report states why not."""
    run = suite.run("ranges-variable", suite.python("ranges.py"), Mode.VARIABLE)
    yield expect("nvtx.variable.exit", run.code == 0, run.ending())
    trace = single(suite, run)
    notes = [note for note in trace.report["process"]["notes"] if "NVTX" in note]
    seen = trace.records("ranges")
    yield expect("nvtx.variable.seen_or_said", bool(seen) or bool(notes), f"{seen} events; {'; '.join(notes) or 'no note'}")


def operators(suite: Suite) -> Iterator[Result]:
    """`--pytorch autograd-nvtx`: PyTorch's operators are ranges, the kernels are the same, and the program's output
    does not change."""
    command = [*suite.python("train.py", "mlp", "--steps", "100"), "--quiet-times"]
    bare = suite.bare("operators", command)
    plain = single(suite, suite.run("operators-plain", command, Mode.VARIABLE))
    for mode in ("autograd-nvtx", "functions-nvtx"):
        run = suite.run(f"operators-{mode}", [suite.gpuwhy, "run", "--pytorch", mode, "--report", "off", "--", *command])
        same = (run.code, run.stdout) == (bare.code, bare.stdout)
        yield expect(f"nvtx.{mode}.transparent", same, run.ending() if same else run.stderr.strip()[-200:] or run.ending())
        trace = single(suite, run)
        ranges = ranges_of(trace)
        yield expect(
            f"nvtx.{mode}.ranges", len(ranges) > 10,
            f"{sum(ranges.values())} ranges of {len(ranges)} names; {trace.completeness['dropped_ranges']} events dropped")
        kernels = trace.records("kernels")
        yield expect(f"nvtx.{mode}.kernels", kernels == plain.records("kernels"), f"{kernels} of {plain.records('kernels')}")


def checks() -> list[Check]:
    return [
        Check("nvtx.torch", torch), Check("nvtx.header", header), Check("nvtx.variable", variable, exclusive=False),
        Check("nvtx.operators", operators, exclusive=False)]
