"""Independent counts of the same operations: by Nsight Systems, by torch.profiler, and by the program itself.

Each count comes from a separate run, because CUPTI serves one subscriber per process. The programs issue the same
operations in every run, so the counts must be equal, not close.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import pathlib
import re
import sqlite3
from collections.abc import Sequence

from harness import Suite

# Record kind of gpuwhy's report -> table of nsys's SQLite export.
NSYS_TABLES = {
    "kernels": "CUPTI_ACTIVITY_KIND_KERNEL", "copies": "CUPTI_ACTIVITY_KIND_MEMCPY", "memsets": "CUPTI_ACTIVITY_KIND_MEMSET"}
# Record kind -> category in torch.profiler's trace.
TORCH_CATEGORIES = {"kernels": "kernel", "copies": "gpu_memcpy", "memsets": "gpu_memset"}
# Record kinds in the line that microbench prints.
PRINTED_WORDS = ("kernels", "copies", "memsets")


class NoCount(Exception):
    """The tool produced no count; the message says why."""


@dataclasses.dataclass
class Counts:
    """Counts of a tool. `names` and `nanoseconds` are None if it does not report them."""

    records: dict[str, int]
    names: collections.Counter[str] | None = None
    nanoseconds: int | None = None


def printed(stdout: str) -> Counts:
    """The sums in microbench's own line."""
    records = {}
    for kind in PRINTED_WORDS:
        match = re.search(rf"\b{kind}=(\d+)", stdout)
        if not match:
            raise NoCount(f"no {kind}=N in the program's output")
        records[kind] = int(match[1])
    return Counts(records)


def by_nsys(suite: Suite, name: str, command: list[str]) -> Counts:
    """Runs the program under nsys with graph nodes traced one by one, and counts rows of its SQLite export."""
    return read_nsys(nsys_database(suite, name, command))


def nsys_database(
        suite: Suite, name: str, command: list[str], what: str = "cuda", options: Sequence[str] = ()) -> pathlib.Path:
    """Runs the program under nsys, tracing `what` (its option -t) with more `options`, and returns the SQLite export.

    Raises NoCount if there is none.
    """
    if suite.nsys is None:
        raise NoCount("nsys is not installed (set GPUWHY_NSYS to its path)")
    folder = suite.folder(f"{name}-nsys")
    report, database = folder / "report", folder / "report.sqlite"
    extra = suite.nsys_environment()
    profile = suite.run(
        f"{name}-nsys-profile",
        [suite.nsys, "profile", "-t", what, "-s", "none", "--cpuctxsw=none", "--cuda-graph-trace=node", "-f", "true",
         *options, "-o", report, *command], extra=extra)
    # nsys ends with the program's status, which is 0 for all of these without nsys. Otherwise nsys crashed, or made the
    # program fail (seen with graph nodes: `unspecified launch failure`), and its result is incomplete.
    if profile.code != 0:
        lines = profile.stderr.strip().splitlines()
        raise NoCount(f"nsys profile: {profile.ending()}: {lines[-1] if lines else 'no message'}")
    export = suite.run(
        f"{name}-nsys-export",
        [suite.nsys, "export", "--type", "sqlite", "--force-overwrite=true", "-o", database, f"{report}.nsys-rep"],
        extra=extra)
    if not database.exists():
        lines = (export.stderr + export.stdout + profile.stderr).strip().splitlines()
        raise NoCount(f"nsys wrote no database: {lines[-1] if lines else export.ending()}")
    return database


def read_nsys(database: pathlib.Path) -> Counts:
    """Counts the rows of an nsys SQLite file. A missing table means that there was no such record."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        records = {
            kind: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] if table in tables else 0
            for kind, table in NSYS_TABLES.items()}
        names: collections.Counter[str] = collections.Counter()
        nanoseconds = 0
        if NSYS_TABLES["kernels"] in tables:
            for text, count, total in connection.execute(
                    "SELECT s.value, count(*), sum(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
                    "JOIN StringIds s ON s.id = k.demangledName GROUP BY k.demangledName"):
                names[text] += count
                nanoseconds += total
    return Counts(records, names, nanoseconds)


def by_torch(suite: Suite, name: str, command: list[str]) -> Counts:
    """Runs train.py under torch.profiler from before its first CUDA call, and counts the events of the trace."""
    file = suite.folder(f"{name}-torch") / "trace.json"
    run = suite.run(f"{name}-torch", [*command, "--torch-trace", str(file)])
    if not file.exists():
        lines = run.stderr.strip().splitlines()
        raise NoCount(f"torch.profiler wrote no trace: {run.ending()}: {lines[-1] if lines else ''}")
    events = json.loads(file.read_text())["traceEvents"]
    categories = collections.Counter(event.get("cat") for event in events)
    names = collections.Counter(event["name"] for event in events if event.get("cat") == TORCH_CATEGORIES["kernels"])
    return Counts({kind: categories[category] for kind, category in TORCH_CATEGORIES.items()}, names)


def base_name(demangled: str) -> str:
    """The function's own name without its template arguments, parameters and namespaces.

    Demanglers disagree on how to print template arguments (`(int)4`, `4`), so names are compared without them.
    """
    kept, depth = [], 0
    for character in demangled.replace("->", ""):
        if character in "<([{":
            depth += 1
        elif character in ">)]}":
            depth -= 1
        elif depth == 0:
            kept.append(character)
    words = "".join(kept).split("::")[-1].split()
    return words[-1] if words else demangled


def by_base_name(names: collections.Counter[str]) -> collections.Counter[str]:
    folded: collections.Counter[str] = collections.Counter()
    for name, count in names.items():
        folded[base_name(name)] += count
    return folded


def settle_mangled(left: collections.Counter[str], right: collections.Counter[str]) -> int:
    """Removes from both the names that differ only because one side could not demangle them, and returns their
    launches.

    torch.profiler keeps names that its demangler does not know (`_ZN17cutlass__5x_cudnn6KernelI...`). A mangled name
    contains every identifier after its length, so it can be one of the other side's `Kernel` only if it contains
    `6Kernel`.
    """
    settled = 0
    for mangled_side, other in ((left, right), (right, left)):
        for mangled in [name for name in mangled_side if name.startswith("_Z")]:
            for name in [name for name in other if f"{len(name)}{name}" in mangled]:
                count = min(mangled_side[mangled], other[name])
                mangled_side[mangled] -= count
                other[name] -= count
                settled += count
    return settled
