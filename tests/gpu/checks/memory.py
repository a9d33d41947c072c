"""Memory in use by a program, compared with nsys; and recordings of nsys, read by gpuwhy.

The same program runs under each: allocations and sizes are its own, so they are equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import oracles
from harness import Check, Mode, Result, Suite, expect, skipped
from oracles import NoCount
from programs import programs
from trace_report import single

# Kernels of two runs of one program, each of which takes its own time.
TIME_TOLERANCE = 0.01


def device_memory(report: dict[str, Any]) -> dict[str, Any]:
    """Device memory in a report; empty if there is none."""
    places = (report.get("memory") or {}).get("places", [])
    return next((place for place in places if place["kind"] == "device"), {})


def kernels(report: dict[str, Any]) -> tuple[int, int]:
    """Number of kernels, and their time."""
    found = [row for device in report["devices"] for row in device["kernels"]]
    return sum(row["count"] for row in found), sum(row["total_ns"] for row in found)


def memory(suite: Suite) -> Iterator[Result]:
    """`GPUWHY_CUDA_MEMORY_USAGE=on`, and `gpuwhy report` on a database that nsys wrote."""
    program = programs(suite)["gpt"]
    run = suite.run("memory", program.quiet(), Mode.VARIABLE, extra={"GPUWHY_CUDA_MEMORY_USAGE": "on"})
    ours = single(suite, run).report
    place = device_memory(ours)
    yield expect("memory.recorded", place.get("allocations", 0) > 0, json.dumps(place))
    by = place.get("peak_by") or {}
    yield expect("memory.peak_by", by.get("function", "").startswith(("cudaMalloc", "cuMem")), json.dumps(by))
    yield expect("memory.unknown", ours["completeness"]["unknown_kinds"] == 0, "no record of an unknown kind")
    try:
        database = oracles.nsys_database(suite, "memory", program.quiet(), options=["--cuda-memory-usage=true"])
    except NoCount as reason:
        yield skipped("memory.nsys", str(reason))
        return
    read = suite.run("memory-import", [suite.gpuwhy, "report", "--json", database])
    yield expect("memory.import", read.code == 0, read.stderr.strip()[:200])
    theirs = json.loads(read.stdout)
    other = device_memory(theirs)
    for field in ("peak_bytes", "allocations", "allocated_bytes", "largest_bytes"):
        yield expect(f"memory.{field}", place.get(field) == other.get(field), f"gpuwhy {place.get(field)}, nsys {other.get(field)}")
    (count, time), (other_count, other_time) = kernels(ours), kernels(theirs)
    yield expect("memory.import.kernels", count == other_count, f"gpuwhy {count}, nsys {other_count}")
    difference = abs(time - other_time) / max(time, 1)
    yield expect("memory.import.kernel_time", difference <= TIME_TOLERANCE, f"{difference:.2%} apart")


def checks() -> list[Check]:
    return [Check("memory", memory, exclusive=True)]
