"""Iterations of a server in a report, beside those that the server wrote down (`examples/python/server.py --truth`).

    python3 iterations.py GPUWHY TRACE TRUTH    # prints the comparison as JSON
"""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence

# The end of an iteration is that of a copy on the device, whose clock is converted: maximum distance from the time of
# the server, nanoseconds.
SLACK_NS = 100_000
NO_REQUESTS = "no requests"
# Kinds of the report, and those of the server that they may mean.
MEANINGS = {"decode": {"decode"}, "prefill": {"prefill"}, "mixed": {"mixed"}, "prefill or mixed": {"prefill", "mixed"}}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """`matched` of `found` iterations ended in one of the server's `there`, each in another one. Of these, `same_kind`
    have the server's kind, and of `counted`, those with a number of tokens, `exact` have its sequences and tokens.
    `kinds` and `server_kinds`: iterations by kind. Share of the time without requests: `waiting` by
    the server, `no_requests` by the report."""

    there: int
    found: int
    matched: int
    same_kind: int
    counted: int
    exact: int
    kinds: dict[str, int]
    server_kinds: dict[str, int]
    waiting: float
    no_requests: float
    # The first iterations that are not those of the server, with the server's.
    wrong: list[tuple[dict, dict | None]]

    @property
    def boundaries(self) -> float:
        return self.matched / max(self.there, self.found, 1)

    @property
    def right_kinds(self) -> float:
        return self.same_kind / max(self.matched, 1)


def read_truth(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def partners(ends: Sequence[int], truth: Sequence[dict]) -> list[dict | None]:
    """For each end, in order, the server's first iteration that lasted then and that no earlier end has taken."""
    found: list[dict | None] = []
    following = 0
    for end in ends:
        while following < len(truth) and truth[following]["end_ns"] + SLACK_NS < end:
            following += 1
        fits = following < len(truth) and truth[following]["start_ns"] - SLACK_NS <= end
        found.append(truth[following] if fits else None)
        following += fits
    return found


def compare(report: dict, steps: Sequence[dict], truth: Sequence[dict]) -> Comparison:
    """`steps`: iterations of the table `steps`, in order."""
    iterations = [row for row in truth if row["kind"] != NO_REQUESTS]
    pairs = list(zip(steps, partners([step["end_ns"] for step in steps], iterations)))
    matched = [(step, partner) for step, partner in pairs if partner]
    right = [step for step, partner in matched if partner["kind"] in MEANINGS[step["kind"]]]
    counted = [(step, partner) for step, partner in matched if step["tokens"]]
    exact = [step for step, partner in counted if all(step[name] == partner[name] for name in ("sequences", "tokens"))]
    duration = max(row["end_ns"] for row in truth) - min(row["start_ns"] for row in truth)
    waited = sum(row["end_ns"] - row["start_ns"] for row in truth if row["kind"] == NO_REQUESTS)
    idle = sum(device["leaves"]["no_work"] for device in report["devices"]) if report["serving"] else 0
    fine = {id(step) for step in right} & {id(step) for step in exact}
    wrong = [pair for pair in pairs if id(pair[0]) not in fine]
    return Comparison(
        there=len(iterations), found=len(steps), matched=len(matched), same_kind=len(right), counted=len(counted), exact=len(exact),
        kinds=dict(collections.Counter(step["kind"] for step in steps)),
        server_kinds=dict(collections.Counter(row["kind"] for row in iterations)),
        waiting=waited / duration, no_requests=idle / duration, wrong=wrong[:5])


def output(command: Sequence[str | pathlib.Path]) -> object:
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout or "[]")


def compare_trace(gpuwhy: str | pathlib.Path, trace: pathlib.Path, truth: pathlib.Path) -> Comparison:
    """Raises subprocess.CalledProcessError if the trace is not readable."""
    query = "SELECT end_ns, kind, sequences, tokens FROM steps WHERE source = 'iteration' ORDER BY device, step"
    steps = output([gpuwhy, "query", query, trace, "--json"])
    report = output([gpuwhy, "report", trace, "--json"])
    return compare(report[0] if isinstance(report, list) else report, [step for step in steps if step["kind"]], read_truth(truth))


if __name__ == "__main__":
    result = compare_trace(sys.argv[1], *map(pathlib.Path, sys.argv[2:]))
    print(json.dumps({**dataclasses.asdict(result), "boundaries": result.boundaries, "right_kinds": result.right_kinds}))
