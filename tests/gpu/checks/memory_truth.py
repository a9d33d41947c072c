"""Memory in the report, compared with what programs know about theirs (workloads/memory/programs.py).

`memory.told.P`: in the default mode, from readings and calls. `memory.owners.P`: with `GPUWHY_CUDA_MEMORY_USAGE=on`.
`memory.blocks.P`: under `gpuwhy run --pytorch memory`. Readings are of the whole device, so the programs run alone.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from harness import HERE, Check, Mode, Result, Run, Suite, expect, skipped
from trace_report import largest

SCRIPT = HERE / "workloads" / "memory" / "programs.py"
NOT_INSTALLED = 77
MIB = 1 << 20
# Of what the device says at a mark: part of it, or bytes.
PEAK_PART, PEAK_BYTES = 0.02, 16 * MIB
OWNER_BYTES, UNNAMED_PART, CLASS_PART = 2 * MIB, 0.01, 0.05
# 70 MiB were seen for two graphs.
GRAPH_BYTES = 128 * MIB
TORCH = (
    "segments", "expandable", "async_backend", "graph_pool", "leak", "plateau", "sawtooth", "one_big", "oom_caught", "oom_killed",
    "retry", "llama", "hf_trainer", "two_idle", "two_grows", "fork_loader", "local_memory", "expert")
PROGRAMS = (*TORCH, "own_allocator", "jax_mlp", "cupy_pool", "rmm_like")
# Their memory grows with each step.
LEAKS = ("leak",)
# It rises, and goes on without growth.
STILL = ("plateau", "sawtooth")
# One allocation is far larger than all others.
JUMPS = ("one_big", "rmm_like")
# PyTorch's allocator asks the driver by cudaMalloc, and counts its failures.
COUNTED = tuple(name for name in TORCH if name not in ("expandable", "async_backend"))
# Owner -> what the program calls its bytes.
OWNERS = {
    **{name: {"pytorch": "reserved"} for name in TORCH if name not in ("async_backend", "graph_pool")},
    "jax_mlp": {"xla": "xla_pool_bytes"}, "cupy_pool": {"cupy": "pool_bytes"}, "rmm_like": {"cupy": "cupy_bytes"},
    "own_allocator": {"program": "own_bytes"}, "graph_pool": {"graph_pools": "graph_pool_bytes", "pytorch": "other_segments"},
    "two_idle": {"pytorch": "reserved", "other_processes": "other_bytes"}}
# They record PyTorch's memory history themselves.
EXPERTS = ("expert",)
CLASSES = {"parameters": "parameter_bytes", "optimizer_state": "optimizer_bytes"}
# Short ones that also run without gpuwhy.
ALSO_BARE = ("segments", "expandable", "oom_caught", "oom_killed", "retry", "expert")
BLOCKS = ("leak", "plateau", "sawtooth", "llama", "hf_trainer", "oom_caught", "oom_killed", "expert")
# What does not depend on time or on the memory that is free.
FIXED = ("parameter_bytes", "optimizer_bytes", "num_ooms", "num_alloc_retries", "entries", "segments")

Mark = dict[str, Any]


def marks_of(run: Run) -> list[Mark]:
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"program"')]


def fixed(marks: Sequence[Mark]) -> dict[str, dict[str, int]]:
    """What is the same in each run, by mark."""
    return {mark["mark"]: {name: mark[name] for name in FIXED if name in mark} for mark in marks}


def highest(marks: Sequence[Mark]) -> Mark:
    """The mark with the most memory in use."""
    return max(marks, key=lambda mark: mark["nvml_used"])


def known(marks: Sequence[Mark], name: str) -> Any:
    """The last value with this name."""
    return next((mark[name] for mark in reversed(marks) if name in mark), None)


def device_of(report: dict[str, Any]) -> dict[str, Any]:
    """The first device's memory; empty if the report has none."""
    return ((report.get("memory") or {}).get("devices") or [{}])[0]


def allocated_slope(marks: Sequence[Mark]) -> float:
    """By how much PyTorch's blocks grew in one step of the program."""
    counted = [mark for mark in marks if "steps" in mark]
    return (counted[-1]["allocated"] - counted[0]["allocated"]) / (counted[-1]["steps"] - counted[0]["steps"])


def slope(marks: Sequence[Mark], report: dict[str, Any]) -> float | None:
    """By how much the device's memory grew in one step of the report, which may be several of the program's, or a part."""
    counted = [mark for mark in marks if "steps" in mark]
    median = ((report["devices"][0].get("steps") or {}).get("median_ns")) if report.get("devices") else None
    if len(counted) < 2 or not median:
        return None
    first, last = counted[0], counted[-1]
    return (last["nvml_used"] - first["nvml_used"]) / (last["unix_ns"] - first["unix_ns"]) * median


def growth(name: str, marks: Sequence[Mark], report: dict[str, Any]) -> Result:
    device, title = device_of(report), f"memory.told.{name}.growth"
    found = device.get("growth_per_step")
    if name not in LEAKS:
        is_right = found is None and (name not in STILL or device.get("growth_judged", False))
        return expect(title, is_right, f"{found}, judged: {device.get('growth_judged')}")
    truth = slope(marks, report)
    if found is None or truth is None:
        return expect(title, False, f"{found}, judged: {device.get('growth_judged')}; {truth} bytes a step")
    return expect(title, found["low"] <= truth <= found["high"],
                  f"{truth:.0f} bytes a step, found {found['bytes']:.0f} ({found['low']:.0f} to {found['high']:.0f})")


def peak(name: str, marks: Sequence[Mark], report: dict[str, Any]) -> Result:
    used, found = highest(marks)["nvml_used"], device_of(report).get("peak_used_bytes")
    is_near = found is not None and abs(found - used) <= max(PEAK_BYTES, PEAK_PART * used)
    return expect(f"memory.told.{name}.peak", is_near, f"{found}, at the mark {highest(marks)['mark']} {used}")


def told(name: str, marks: Sequence[Mark], report: dict[str, Any]) -> Iterator[Result]:
    """What the default mode tells."""
    device = device_of(report)
    yield peak(name, marks, report)
    yield growth(name, marks, report)
    if name in COUNTED:
        ooms, retries = (known(marks, field) or 0 for field in ("num_ooms", "num_alloc_retries"))
        failed, retried = device.get("failed"), device.get("retried")
        yield expect(f"memory.told.{name}.calls", (failed, retried) == (ooms + retries, retries - ooms),
                     f"{failed} failed, {retried} retried; PyTorch retried {retries} times and gave up {ooms} times")
    if name in JUMPS:
        jump, asked, function = device.get("jump") or {}, known(marks, "own_bytes"), known(marks, "function")
        yield expect(f"memory.told.{name}.jump", abs(jump.get("bytes", 0) - asked) <= PEAK_BYTES, f"{jump.get('bytes')}, asked {asked}")
        # The line is that of a sample up to 25 ms away. On an H200 it was at times in another function: this check fails then.
        if function:
            near = jump.get("near") or {}
            yield expect(f"memory.told.{name}.near", near.get("function") == function, f"{near}, asked in {function}; {jump.get('calls')}")


def owned(name: str, marks: Sequence[Mark], report: dict[str, Any]) -> Iterator[Result]:
    """Owners of the memory at the peak."""
    device, at, title = device_of(report), highest(marks), f"memory.owners.{name}"
    rows = {row["owner"]: row for row in device.get("owners") or []}
    if not rows:
        yield expect(title, False, "the report has no owners")
        return
    found, used = {owner: row["peak_bytes"] for owner, row in rows.items()}, device["peak_used_bytes"]
    yield expect(f"{title}.sum", sum(found.values()) == used, f"{sum(found.values())} of {used}")
    unnamed = found.get("unnamed", 0)
    yield expect(f"{title}.unnamed", abs(unnamed) <= UNNAMED_PART * used, f"{unnamed} of {used}; {found}")
    # PyTorch asks for whole pages; what others ask for is rounded up to them.
    nearly = OWNER_BYTES * (1 if name in TORCH else max(device.get("allocations") or 0, 1))
    for owner, field in OWNERS.get(name, {}).items():
        # Beside the pool the driver takes memory to instantiate the graphs; its list of processes lacks some megabytes.
        least, most = {"graph_pools": (0, GRAPH_BYTES), "other_processes": (-PEAK_BYTES, PEAK_BYTES)}.get(owner, (-nearly, nearly))
        yield expect(f"{title}.{owner}", field in at and least <= found.get(owner, 0) - at[field] <= most,
                     f"{found.get(owner)}, by the program {at.get(field)} at the mark {at['mark']}")
    if name in JUMPS:
        near = rows.get(next(iter(OWNERS[name])), {}).get("near")
        yield expect(f"{title}.line", is_line(near, known(marks, "line")), f"{near}, line {known(marks, 'line')}")


def is_line(site: dict[str, Any] | None, line: int | None) -> bool:
    return bool(site) and site["line"] == line and site["file"].endswith("programs.py")


def blocks(name: str, marks: Sequence[Mark], report: dict[str, Any]) -> Iterator[Result]:
    """PyTorch's blocks at the peak by class, the line that grows, and what is told when memory runs out."""
    found, title = device_of(report).get("blocks") or {}, f"memory.blocks.{name}"
    state, grows, ends = found.get("peak"), found.get("growth"), found.get("out_of_memory") or []
    if name in EXPERTS:
        yield expect(f"{title}.silent", not state, "the program's own history is left alone")
        return
    if not state:
        yield expect(f"{title}.peak", False, "the report has no blocks")
        return
    for kind, field in CLASSES.items():
        if truth := known(marks, field):
            size = sum(row["bytes"] for row in state["rows"] if row["class"] == kind)
            yield expect(f"{title}.{kind}", abs(size - truth) <= CLASS_PART * truth, f"{size} of {truth}")
    if name in LEAKS:
        truth, line = allocated_slope(marks), known(marks, "line")
        is_right = bool(grows) and round(grows["low"]) <= round(truth) <= round(grows["high"]) and is_line(grows["site"], line)
        yield expect(f"{title}.growth", is_right, f"{grows}, {truth:.0f} a step at line {line}")
    else:
        yield expect(f"{title}.growth", not grows, f"{grows}")
    told, asked = [end["asked_bytes"] for end in ends], known(marks, "asked")
    # PyTorch asks for whole pages.
    is_told = len(told) == 1 and 0 <= told[0] - asked < 2 * MIB if asked else not told
    yield expect(f"{title}.out_of_memory", is_told, f"asked {told}, by the program {asked}")
    if asked and ends:
        free, gap = known(marks, "free_when_asked"), known(marks, "largest_gap")
        yield expect(f"{title}.free", abs(ends[0]["free_bytes"] - free) <= PEAK_BYTES, f"{ends[0]['free_bytes']} free, by the program {free}")
        # Of a segment, what is left beside the part that is in use; segments are whole pages.
        largest = ends[0]["largest_gap_bytes"] or 0
        yield expect(f"{title}.gap", abs(largest - gap) <= PEAK_BYTES, f"largest gap {largest}, by the program {gap}")
        yield expect(f"{title}.line", is_line(ends[0]["site"], known(marks, "line")), f"{ends[0]['site']}, line {known(marks, 'line')}")


def started(suite: Suite, name: str, what: str) -> Run:
    """A run in the mode of a kind of check."""
    command = [sys.executable, str(SCRIPT), name]
    if what == "blocks":
        return suite.run(f"memory-{name}-{what}", [suite.gpuwhy, "run", "--pytorch", "memory", "--report", "off", "--", *command])
    mode = Mode.BARE if what == "bare" else Mode.VARIABLE
    return suite.run(f"memory-{name}-{what}", command, mode, extra={"GPUWHY_CUDA_MEMORY_USAGE": "on"} if what == "owners" else None)


def truth(name: str, what: str) -> Check:
    title, judge = f"memory.{what}.{name}", {"told": told, "owners": owned, "blocks": blocks}[what]

    def check(suite: Suite) -> Iterator[Result]:
        run = started(suite, name, what)
        if run.code == NOT_INSTALLED:
            yield skipped(title, run.stderr.strip())
            return
        marks, ends_with = marks_of(run), -signal.SIGKILL if name == "oom_killed" else 0
        # `gpuwhy run` ends as a shell would.
        codes = (ends_with, 128 - ends_with) if ends_with else (0,)
        yield expect(f"{title}.ends", run.code in codes and bool(marks), f"{run.ending()}, marks {', '.join(mark['mark'] for mark in marks)}")
        if not marks:
            return
        if what == "told" and name in ALSO_BARE:
            bare = started(suite, name, "bare")
            yield expect(f"{title}.same", (bare.code, fixed(marks_of(bare))) == (run.code, fixed(marks)), f"{bare.ending()} bare; {fixed(marks)}")
        yield from judge(name, marks, largest(suite, run).report)

    return Check(title, check, credit=60.0)


def checks() -> list[Check]:
    kinds = {"told": PROGRAMS, "owners": PROGRAMS, "blocks": BLOCKS}
    return [truth(name, what) for what, names in kinds.items() for name in names]
