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
    """`matched` of `found` iterations ended in one of the server's `there`, each in another one. The newest ones are
    in the report with their kind: of `listed`, `same_kind` have that of the server, and of `counted`, those with a
    number of tokens, `exact` have its sequences and tokens. `kinds` and `server_kinds`: iterations by kind of all.
    Shares of the server's time: `waiting`, without requests, and `no_work`, the same by the report."""

    there: int
    found: int
    matched: int
    listed: int
    same_kind: int
    counted: int
    exact: int
    kinds: dict[str, int]
    server_kinds: dict[str, int]
    tokens: int
    server_tokens: int
    waiting: float
    no_work: float

    @property
    def boundaries(self) -> float:
        return self.matched / max(self.there, self.found, 1)

    @property
    def right_kinds(self) -> float:
        """Share of iterations with the right kind: of those listed, or by the numbers of all, whichever is lower."""
        all_right = sum(min(count, sum(self.server_kinds.get(kind, 0) for kind in MEANINGS[name])) for name, count in self.kinds.items())
        return min(all_right / max(self.there, 1), self.same_kind / max(self.listed, 1))


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


def compare(report: dict, ends: Sequence[int], truth: Sequence[dict]) -> Comparison:
    """`ends`: of all iterations that the report found, nanoseconds since 1970."""
    iterations = [row for row in truth if row["kind"] != NO_REQUESTS]
    device = report["devices"][0]
    pairs = dict(zip(ends, partners(ends, iterations)))
    rows = [row for row in (device["steps"] or {"rows": []})["rows"] if row.get("iteration")]
    listed = [(row["iteration"], pairs.get(row["start_unix_ns"] + row["duration_ns"])) for row in rows]
    listed = [(iteration, partner) for iteration, partner in listed if partner]
    counted = [(iteration, partner) for iteration, partner in listed if iteration["tokens"]]
    kinds = {kind["name"]: kind for kind in device["step_kinds"] or [] if kind["name"] in MEANINGS}
    duration = max(row["end_ns"] for row in truth) - min(row["start_ns"] for row in truth)
    waited = sum(row["end_ns"] - row["start_ns"] for row in truth if row["kind"] == NO_REQUESTS)
    return Comparison(
        there=len(iterations), found=len(ends), matched=sum(partner is not None for partner in pairs.values()), listed=len(listed),
        same_kind=sum(partner["kind"] in MEANINGS[iteration["kind"]] for iteration, partner in listed), counted=len(counted),
        exact=sum((one["sequences"], one["tokens"]) == (other["sequences"], other["tokens"]) for one, other in counted),
        kinds={name: kind["count"] for name, kind in kinds.items()},
        server_kinds=dict(collections.Counter(row["kind"] for row in iterations)),
        tokens=sum(kind["tokens"] or 0 for kind in kinds.values()), server_tokens=sum(row["tokens"] for row in iterations),
        waiting=waited / duration, no_work=device["leaves"].get("no_work", 0) / duration)


def output(command: Sequence[str | pathlib.Path]) -> object:
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout or "[]")


def compare_trace(gpuwhy: str | pathlib.Path, trace: pathlib.Path, truth: pathlib.Path) -> Comparison:
    """Raises subprocess.CalledProcessError if the trace is not readable."""
    steps = output([gpuwhy, "query", "SELECT end_ns, source FROM steps ORDER BY device, step", trace, "--json"])
    report = output([gpuwhy, "report", trace, "--json"])
    report = report[0] if isinstance(report, list) else report
    return compare(report, [step["end_ns"] for step in steps if step["source"] == "iteration"], read_truth(truth))


if __name__ == "__main__":
    result = compare_trace(sys.argv[1], *map(pathlib.Path, sys.argv[2:]))
    print(json.dumps({**dataclasses.asdict(result), "boundaries": result.boundaries, "right_kinds": result.right_kinds}))
