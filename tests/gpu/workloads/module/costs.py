"""Overhead of a range and a step for the program, nanoseconds: without measuring, and in a session. Prints JSON."""

from __future__ import annotations

import json
import statistics
import time

import gpuwhy

COUNT = 20_000
ROUNDS = 7


def median(work) -> float:
    """Nanoseconds per operation of `work`, which performs COUNT of them."""
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        work()
        found.append((time.perf_counter_ns() - began) / COUNT)
    return statistics.median(found)


def ranges() -> None:
    for _ in range(COUNT):
        with gpuwhy.range("cost"):
            pass


def steps() -> None:
    for _ in gpuwhy.steps(range(COUNT)):
        pass


def empty() -> None:
    for _ in range(COUNT):
        pass


def main() -> dict:
    found = {"empty": median(empty), "range_without": median(ranges), "step_without": median(steps)}
    import torch

    with gpuwhy.profile(quiet=True) as p:
        torch.zeros(8, device="cuda").add_(1)
        found["range"], found["step"] = median(ranges), median(steps)
    found["recorded"] = p.report.completeness["records"]["ranges"]
    found["dropped"] = p.report.completeness["dropped_ranges"]
    return found


if __name__ == "__main__":
    print(json.dumps(main()))
