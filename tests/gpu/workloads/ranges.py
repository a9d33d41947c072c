"""Marks its work with NVTX: torch.cuda.nvtx, several threads, and the nvtx package if it is installed.

Prints one JSON object: the number of times that each text was pushed, started and marked, and the cost of a pushed and
popped range in nanoseconds. Texts contain no numbers, so that no tool folds them.
"""

from __future__ import annotations

import collections
import json
import sys
import threading
import time

import torch
from torch.cuda import nvtx

STEPS = 500
THREADS = 4
# Number of ranges timed at once, and of repetitions: a burst fits into a ring of libprof.so, with time to drain in
# between.
BURST, BURSTS = 10_000, 10


def work(counts: collections.Counter[str]) -> None:
    """Steps with nested ranges, ranges that end by number, and marks."""
    values = torch.randn(256, 256, device="cuda")
    for _ in range(STEPS):
        nvtx.range_push("step")
        whole = nvtx.range_start("whole")
        with nvtx.range("forward"):
            values = torch.tanh(values @ values)
        nvtx.mark("between")
        with nvtx.range("backward"):
            values = torch.tanh(values @ values)
        nvtx.range_end(whole)
        nvtx.range_pop()
    torch.cuda.synchronize()
    counts.update({f"push {text}": STEPS for text in ("step", "forward", "backward")})
    counts.update({"start whole": STEPS, "mark between": STEPS})


def other_threads(counts: collections.Counter[str]) -> None:
    """The same text from several threads at once."""
    def one() -> None:
        for _ in range(STEPS):
            nvtx.range_push("thread")
            nvtx.range_pop()

    threads = [threading.Thread(target=one) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts["push thread"] += THREADS * STEPS


def package(counts: collections.Counter[str]) -> bool:
    """A domain, a category, a color and a payload, through a copy of NVTX that is not PyTorch's."""
    try:
        import nvtx as nvtx_package
    except ImportError:
        return False
    for step in range(STEPS):
        with nvtx_package.annotate("annotated", domain="checks", category="package", color="green", payload=step):
            pass
    counts["push annotated"] += STEPS
    return True


def cost(counts: collections.Counter[str]) -> float:
    """Median over bursts, nanoseconds for a push and its pop, including Python's own part."""
    found = []
    for _ in range(BURSTS):
        began = time.perf_counter_ns()
        for _ in range(BURST):
            nvtx.range_push("cost")
            nvtx.range_pop()
        found.append((time.perf_counter_ns() - began) / BURST)
        time.sleep(0.3)
    counts["push cost"] += BURST * BURSTS
    return sorted(found)[BURSTS // 2]


def main() -> int:
    counts: collections.Counter[str] = collections.Counter()
    nvtx.range_push("before CUDA")
    nvtx.range_pop()
    counts["push before CUDA"] += 1
    work(counts)
    other_threads(counts)
    has_package = package(counts)
    pair = cost(counts)
    print(json.dumps({"counts": counts, "pair_ns": pair, "package": has_package}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
