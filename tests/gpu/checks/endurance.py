"""A long run: thirty million records of graph nodes through one process, whose memory must not grow.

This is the hardest stream of records, about a million records per second without a pause. The resident memory is read
from outside, so that the check does not affect the process.
"""

from __future__ import annotations

import pathlib
import re
import time
from collections.abc import Iterator

import oracles
from harness import Check, Mode, Result, Suite, expect

# Nodes of the graph, launches per repetition, repetitions.
NODES, LAUNCHES, REPETITIONS = 1_000, 1_000, 30
# Maximum growth from the middle third of the run to the last that counts as flat, KiB: a few of CUPTI's buffers, whose
# number varies.
FLAT = 16 * 1024
# Time between two readings of the memory, seconds.
PERIOD = 0.1


def resident(process: int) -> int | None:
    """Resident memory in KiB; None once the process has ended."""
    try:
        match = re.search(r"^VmRSS:\s*(\d+)", pathlib.Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None


def graph_nodes(suite: Suite) -> Iterator[Result]:
    command = [suite.microbench, "graph", str(NODES), str(LAUNCHES), "--reps", str(REPETITIONS)]
    began = time.monotonic()
    process, folder = suite.start("endurance", command, Mode.VARIABLE, {"GPUWHY_REPORT": "summary"})
    sizes: list[int] = []
    while process.poll() is None and time.monotonic() < began + 140:
        if (size := resident(process.pid)) is not None:
            sizes.append(size)
        time.sleep(PERIOD)
    run = suite.finish(process, folder, began)
    launched = oracles.printed(run.stdout).records["kernels"]
    # Taken from the program's own output at its end: reading all the records again would take as long as the run.
    last = re.findall(r"^Recorded .*(?:\n .*)*", run.stderr, re.MULTILINE)
    match = re.match(r"(?s)Recorded (\d+) kernels.* nothing\s+is\s+missing", last[-1]) if last else None
    yield expect(
        "endurance.complete", match is not None and int(match[1]) == launched,
        f"{launched} launched in {run.seconds:.0f} s; {' '.join(last[-1].split()) if last else run.ending()}")
    third = len(sizes) // 3
    middle, final = max(sizes[third:2 * third], default=0), max(sizes[2 * third:], default=0)
    yield expect(
        "endurance.memory", third >= 30 and final <= middle + FLAT,
        f"{middle / 1024:.0f} MiB in the middle third, {final / 1024:.0f} MiB in the last, {len(sizes)} looks")


def checks() -> list[Check]:
    return [Check("endurance", graph_nodes)]
