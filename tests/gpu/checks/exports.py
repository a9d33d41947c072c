"""nsys's own reports on our SQLite export say what `gpuprof stats` says: same columns, same rows, same numbers."""

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
# Medians and deviations are computed by different sums of floating-point numbers.
ROUNDING = 0.11


def rows(text: str) -> list[dict[str, str]]:
    """The rows of a CSV text, from its header on: nsys writes notices before it."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.count(",") >= 6), len(lines))
    return list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))


def same(left: str, right: str) -> bool:
    try:
        return abs(float(left) - float(right)) <= ROUNDING
    except ValueError:
        return left.strip() == right.strip()


def key(row: dict[str, str]) -> tuple[str, ...]:
    """Rows with equal totals come in any order; what is computed with fractions may differ in its last digit."""
    return tuple(value.strip() for value in row.values() if value and "." not in value)


def compare(name: str, ours: list[dict[str, str]], theirs: list[dict[str, str]]) -> Iterator[Result]:
    left, right = (list(table[0]) if table else [] for table in (ours, theirs))
    yield expect(f"{name}.columns", left == right, f"only gpuprof {set(left) - set(right)}, only nsys {set(right) - set(left)}")
    yield expect(f"{name}.rows", len(ours) == len(theirs) > 0, f"gpuprof {len(ours)}, nsys {len(theirs)}")
    shared = [column for column in left if column in right]
    different = [
        f"{column}: gpuprof {a[column]!r}, nsys {b[column]!r}"
        for a, b in zip(sorted(ours, key=key), sorted(theirs, key=key), strict=False)
        for column in shared if not same(a[column], b[column])]
    yield expect(f"{name}.cells", not different, "; ".join(different[:3]) or f"{len(ours) * len(shared)} cells")


def exports(suite: Suite) -> Iterator[Result]:
    """`nsys stats` on `gpuprof export --to sqlite` against `gpuprof stats`, report by report."""
    if suite.nsys is None:
        yield skipped("exports", "nsys is not installed (set GPUPROF_NSYS to its path)")
        return
    run = suite.run("exports", programs(suite)["mlp"].quiet(), Mode.VARIABLE)
    trace = single(suite, run)
    database = pathlib.Path(run.folder) / "export.sqlite"
    export = suite.run("exports-sqlite", [suite.gpuprof, "export", "--to", "sqlite", trace.path, "-o", database])
    yield expect("exports.sqlite", export.code == 0, export.stderr.strip()[:200])
    for report in REPORTS:
        ours = suite.run(f"exports-{report}", [suite.gpuprof, "stats", "-r", report, "-f", "csv", trace.path])
        theirs = suite.run(
            f"exports-{report}-nsys", [suite.nsys, "stats", "--report", report, "--format", "csv", "--output", "-", database],
            extra=suite.nsys_environment())
        yield from compare(f"exports.{report}", rows(ours.stdout), rows(theirs.stdout))


def checks() -> list[Check]:
    return [Check("exports", exports, exclusive=False)]
