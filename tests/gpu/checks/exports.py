"""nsys's own reports and rules on our SQLite export agree with `gpuwhy query`: same columns, same rows, same numbers.
"""

from __future__ import annotations

import csv
import io
import pathlib
from collections.abc import Iterator

from harness import Check, Mode, Result, Suite, expect, skipped
from programs import programs
from trace_report import single

# Kernels, copies and calls; the execution summaries join them.
REPORTS = (
    "cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum", "cuda_gpu_sum",
    "cuda_api_sum", "cuda_api_gpu_sum", "cuda_kern_exec_sum", "cuda_gpu_trace", "cuda_api_trace",
    "cuda_kern_exec_trace",
)
# Reports about ranges, from a program that has some.
RANGE_REPORTS = (
    "nvtx_sum", "nvtx_pushpop_sum", "nvtx_startend_sum", "nvtx_pushpop_trace", "nvtx_kern_sum", "nvtx_gpu_proj_sum",
    "nvtx_gpu_proj_trace",
)
# Rules, with the options that make them find something in a short program.
RULES = (
    "cuda_memcpy_async:rows=-1", "cuda_memcpy_sync:rows=-1", "cuda_memset_sync:rows=-1", "cuda_api_sync:rows=-1",
    "gpu_gaps:gap=1:rows=-1", "gpu_time_util:threshold=15:rows=-1",
)
# Numbers that nsys assigns to ranges arbitrarily.
ARBITRARY = {"RangeId", "ParentId", "RangeStack"}
# Medians and deviations are computed by different sums of floating-point numbers.
ROUNDING = 0.11


def rows(text: str) -> list[dict[str, str]]:
    """Rows of a CSV text, from its header on: nsys writes notices before it."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.count(",") >= 3), len(lines))
    return list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))


def same(left: str, right: str) -> bool:
    try:
        return abs(float(left) - float(right)) <= ROUNDING
    except ValueError:
        return left.strip() == right.strip()


def key(row: dict[str, str]) -> tuple[str, ...]:
    """Key of a row: rows with equal totals come in any order, and values computed with fractions may differ in the last
    digit."""
    return tuple(value.strip() for column, value in row.items() if value and "." not in value and column not in ARBITRARY)


def compare(name: str, ours: list[dict[str, str]], theirs: list[dict[str, str]]) -> Iterator[Result]:
    left, right = (list(table[0]) if table else [] for table in (ours, theirs))
    yield expect(f"{name}.columns", left == right, f"only gpuwhy {set(left) - set(right)}, only nsys {set(right) - set(left)}")
    yield expect(f"{name}.rows", len(ours) == len(theirs) > 0, f"gpuwhy {len(ours)}, nsys {len(theirs)}")
    shared = [column for column in left if column in right and column not in ARBITRARY]
    different = [
        f"{column}: gpuwhy {a[column]!r}, nsys {b[column]!r}"
        for a, b in zip(sorted(ours, key=key), sorted(theirs, key=key), strict=False)
        for column in shared if not same(a[column], b[column])]
    yield expect(f"{name}.cells", not different, "; ".join(different[:3]) or f"{len(ours) * len(shared)} cells")


def exports(suite: Suite) -> Iterator[Result]:
    """`nsys stats` on `gpuwhy export --to sqlite` compared with `gpuwhy query`, report by report."""
    if suite.nsys is None:
        yield skipped("exports", "nsys is not installed (set GPUWHY_NSYS to its path)")
        return
    run = suite.run("exports", programs(suite)["mlp"].quiet(), Mode.VARIABLE)
    trace = single(suite, run)
    database = pathlib.Path(run.folder) / "export.sqlite"
    export = suite.run("exports-sqlite", [suite.gpuwhy, "export", "--force", "--to", "sqlite", trace.path, "-o", database])
    yield expect("exports.sqlite", export.code == 0, export.stderr.strip()[:200])
    for report in REPORTS:
        ours = suite.run(f"exports-{report}", [suite.gpuwhy, "query", report, "-f", "csv", trace.path])
        theirs = suite.run(
            f"exports-{report}-nsys", [suite.nsys, "stats", "--report", report, "--format", "csv", "--output", "-", database],
            extra=suite.nsys_environment())
        yield from compare(f"exports.{report}", rows(ours.stdout), rows(theirs.stdout))
    for rule in RULES:
        name = rule.partition(":")[0]
        ours = suite.run(f"analyze-{name}", [suite.gpuwhy, "query", rule, "-f", "csv", trace.path])
        theirs = suite.run(
            f"analyze-{name}-nsys", [suite.nsys, "analyze", "--rule", rule, "--format", "csv", "--output", "-", database],
            extra=suite.nsys_environment())
        left, right = rows(ours.stdout), rows(theirs.stdout)
        if not left and not right:
            yield expect(f"analyze.{name}", ours.code == theirs.code == 0, "neither finds anything")
        else:
            yield from compare(f"analyze.{name}", left, right)


def ranges(suite: Suite) -> Iterator[Result]:
    """The same for the reports about ranges."""
    if suite.nsys is None:
        yield skipped("exports.ranges", "nsys is not installed (set GPUWHY_NSYS to its path)")
        return
    run = suite.run("exports-ranges", suite.python("ranges.py"), Mode.COMMAND)
    trace = single(suite, run)
    database = pathlib.Path(run.folder) / "export.sqlite"
    export = suite.run("exports-ranges-sqlite", [suite.gpuwhy, "export", "--force", "--to", "sqlite", trace.path, "-o", database])
    yield expect("exports.ranges.sqlite", export.code == 0, export.stderr.strip()[:200])
    for report in RANGE_REPORTS:
        ours = suite.run(f"exports-{report}", [suite.gpuwhy, "query", report, "-f", "csv", trace.path])
        theirs = suite.run(
            f"exports-{report}-nsys", [suite.nsys, "stats", "--report", report, "--format", "csv", "--output", "-", database],
            extra=suite.nsys_environment())
        yield from compare(f"exports.{report}", rows(ours.stdout), rows(theirs.stdout))


def checks() -> list[Check]:
    return [Check("exports", exports, exclusive=False), Check("exports.ranges", ranges, exclusive=False)]
