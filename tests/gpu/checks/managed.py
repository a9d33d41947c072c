"""Managed memory: every byte that moved, by the program's own count, beside nsys, and in nsys's reports on our file."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import oracles
from checks.exports import compare, rows
from harness import Check, Mode, Result, Suite, expect, skipped
from oracles import NoCount
from trace_report import single

OPTIONS = ["--cuda-um-cpu-page-faults=true", "--cuda-um-gpu-page-faults=true"]
FAULTS = {"GPUWHY_CUDA_UM_CPU_PAGE_FAULTS": "on", "GPUWHY_CUDA_UM_GPU_PAGE_FAULTS": "on"}
REPORTS = ("um_total_sum", "um_cpu_page_faults_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum", "um_sum")
DIRECTIONS = {"to_device": "Total HtoD Migration Size (MB)", "to_host": "Total DtoH Migration Size (MB)"}
# Millions of bytes with three decimals.
ROUNDING = 0.0006


def totals(suite: Suite, name: str, file: pathlib.Path) -> dict[str, float | None]:
    run = suite.run(name, [suite.gpuwhy, "stats", "-r", "um_total_sum", "-f", "json", file])
    found = json.loads(run.stdout or "[]")
    return found[0] if found else {}


def managed(suite: Suite) -> Iterator[Result]:
    """A program that touches managed memory in turn, with page faults of both sides recorded."""
    program = suite.scratch / "managed"
    try:
        build = suite.compile(suite.workloads / "managed.cu", program)
    except FileNotFoundError as error:
        yield skipped("managed", str(error))
        return
    yield expect("managed.build", build.code == 0, build.stderr.strip()[-300:])
    bare = suite.bare("managed", [program])
    moved = json.loads(bare.stdout)
    run = suite.run("managed", [program], Mode.VARIABLE, extra=FAULTS)
    yield expect("managed.output", (run.code, run.stdout) == (0, bare.stdout), run.stderr.strip()[:200])
    trace = single(suite, run)
    notes = [note for note in trace.report["process"]["notes"] if "managed" in note]
    yield expect("managed.notes", not notes, "; ".join(notes) or "nothing could not be recorded")
    yield expect("managed.unknown", trace.completeness["unknown_kinds"] == 0, "no record of an unknown kind")
    ours = totals(suite, "managed-totals", trace.path)
    for direction, column in DIRECTIONS.items():
        megabytes, found = moved[direction] / 1e6, ours.get(column) or 0.0
        yield expect(f"managed.{direction}", abs(found - megabytes) < ROUNDING, f"gpuwhy {found}, program {megabytes}")
    faults = (ours.get("Total CPU Page Faults") or 0, ours.get("Total GPU PageFaults") or 0)
    yield expect("managed.faults", min(faults) > 0, f"host {faults[0]}, devices {faults[1]}")
    try:
        database = oracles.nsys_database(suite, "managed", [str(program)], options=OPTIONS)
    except NoCount as reason:
        yield skipped("managed.nsys", str(reason))
        return
    theirs = totals(suite, "managed-nsys-totals", database)
    for direction, column in DIRECTIONS.items():
        found, recorded = ours.get(column), theirs.get(column)
        yield expect(f"managed.nsys.{direction}", found == recorded, f"gpuwhy {found}, nsys {recorded}")
    export = pathlib.Path(run.folder) / "export.sqlite"
    suite.run("managed-sqlite", [suite.gpuwhy, "export", "--force", "--to", "sqlite", trace.path, "-o", export])
    for report in REPORTS:
        left = suite.run(f"managed-{report}", [suite.gpuwhy, "stats", "-r", report, "-f", "csv", trace.path])
        command = [suite.nsys, "stats", "--report", report, "--format", "csv", "--output", "-", export]
        right = suite.run(f"managed-{report}-nsys", command, extra=suite.nsys_environment())
        ours_table, theirs_table = rows(left.stdout), rows(right.stdout)
        if report == "um_sum":
            # Of addresses with the same throughput each tool shows some.
            for row in [*ours_table, *theirs_table]:
                row.pop("Virtual Address", None)
        yield from compare(f"managed.{report}", ours_table, theirs_table)


def checks() -> list[Check]:
    return [Check("managed", managed)]
