"""The limits of computation, found from 1,000 samples per second and the records of kernels, compared with 10,000
samples.

A sample of 1 ms holds many kernels, one of 0.1 ms one or two: little is left to least squares there. The table also has
the result of the short samples alone, without records: each counts for the unit that it used most. If a sample holds
several kernels with different limits, its largest use is below theirs, so these shares at a limit are too small, and
not judged.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence

import gains
from checks.counters import VARIABLE, query
from harness import Check, Mode, Result, Suite, expect, skipped
from trace_report import Trace, single

USUAL, FAST = "on:1000", "on:10000"
# Median of the differences of the parts, points.
LIMIT = 3.0
# Maximum length of a fast sample, nanoseconds, and minimum number of such samples.
SHORT, FEWEST = 150_000, 2_000
# This part of the samples in which kernels ran is start-up.
STARTUP = 0.25
# Samples in which kernels ran for less than this part are not evaluated.
LEAST_BUSY = 0.05
# A clock that is lower by less than this part does not count as lowered (profiler-core/src/counters/roofs.rs).
CLOCK_ERROR = 0.01
CREDIT = 45.0

PROGRAMS = {"gpt": 150, "resnet": 120, "mlp": 2_000}
UNITS = {"tensor": "tensor", "dram": "memory", "l2": "memory", "l1": "memory", "issue": "issue"}
PARTS = ("tensor", "memory", "issue", "waiting", "idle", "lowered_clock")
METRICS = ("core_clock", "sm_active", *UNITS)


@dataclasses.dataclass(frozen=True)
class Sample:
    """Times are nanoseconds, `values` those of METRICS."""

    start: int
    end: int
    values: tuple[float, ...]


def merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Time in which at least one kernel ran; `spans` by start."""
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def busy_parts(samples: Sequence[Sample], busy: Sequence[tuple[int, int]]) -> list[float]:
    """Part of each sample in which kernels ran; both lists by start."""
    parts, first = [], 0
    for sample in samples:
        while first < len(busy) and busy[first][1] <= sample.start:
            first += 1
        covered, place = 0, first
        while place < len(busy) and busy[place][0] < sample.end:
            covered += min(busy[place][1], sample.end) - max(busy[place][0], sample.start)
            place += 1
        parts.append(covered / max(sample.end - sample.start, 1))
    return parts


def divided(sample: Sample, busy: float, highest_clock: float) -> dict[str, float]:
    """Parts of the time in which kernels ran in a sample. They sum to 1."""
    values = dict(zip(METRICS, sample.values))
    used = {unit: min(max(values[unit] / 100 / busy, 0.0), 1.0) for unit in UNITS}
    nearest = max(used, key=lambda unit: used[unit])
    u = used[nearest]
    lowered = 1 - values["core_clock"] / highest_clock if highest_clock > 0 and nearest != "dram" else 0.0
    lowered = min(lowered, 1.0) if lowered > CLOCK_ERROR else 0.0
    idle = min(max(1 - values["sm_active"] / 100 / busy, 0.0), 1 - u)
    parts = dict.fromkeys(PARTS, 0.0)
    parts[UNITS[nearest]] = u * (1 - lowered)
    parts["lowered_clock"] = u * lowered
    parts["idle"] = idle
    parts["waiting"] = 1 - u - idle
    return parts


def by_samples(samples: Sequence[Sample], busy: Sequence[tuple[int, int]], highest_clock: float) -> dict[str, float]:
    """Shares of the time in which kernels ran, after start-up. Empty if no sample contains any."""
    usable = [(sample, part) for sample, part in zip(samples, busy_parts(samples, busy)) if part >= LEAST_BUSY]
    usable = usable[int(len(usable) * STARTUP):]
    sums, total = dict.fromkeys(PARTS, 0.0), 0.0
    for sample, part in usable:
        weight = part * (sample.end - sample.start)
        total += weight
        for name, value in divided(sample, min(part, 1.0), highest_clock).items():
            sums[name] += weight * value
    return {name: value / total for name, value in sums.items()} if total else {}


def by_report(limits: dict) -> tuple[dict[str, float], float]:
    """Shares of the limits that a report distinguishes, and the unresolved share."""
    steady = limits["steady_ns"]
    total = sum(steady.values())
    reported = total - steady.get("unresolved", 0)
    if reported <= 0:
        return {}, 1.0
    time = {
        **{name: steady.get(name, 0) for name in ("tensor", "memory", "issue", "lowered_clock")},
        "waiting": steady.get("latency", 0) + steady.get("occupancy", 0), "idle": steady.get("idle_multiprocessors", 0)}
    return {name: time[name] / reported for name in PARTS}, 1 - reported / total


def samples_of(suite: Suite, trace: Trace) -> list[Sample]:
    columns = ", ".join(f"max(case when metric = '{name}' then value end)" for name in METRICS)
    rows = query(
        suite, trace, f"select start_ns, end_ns, {columns} from gpu_metrics where end_ns > start_ns group by start_ns, end_ns order by start_ns")
    return [Sample(int(row[0]), int(row[1]), tuple(float(text) for text in row[2:])) for row in rows if all(row)]


def limits_of(trace: Trace) -> dict | None:
    return next((device["compute_limits"] for device in trace.report["devices"] if device.get("compute_limits")), None)


def refusal(trace: Trace) -> str | None:
    """Why there are no samples, if the report states a reason."""
    losses = trace.completeness.get("counters", trace.report.get("counters", []))
    return next((loss["sentence"] for loss in losses if loss.get("sentence")), None)


def differences(ours: dict[str, float], theirs: dict[str, float]) -> list[float]:
    """Absolute difference of each part, in percentage points."""
    return [100 * abs(ours[name] - theirs[name]) for name in PARTS]


def row_of(name: str, way: str, parts: dict[str, float], more: str) -> list[str]:
    return [f"`{name}`", way, *(f"{100 * parts[part]:.1f}" for part in PARTS), more]


def table(rows: Sequence[dict]) -> str:
    """All programs with both methods, in percent of the time of kernels."""
    lines = []
    for row in rows:
        lines.append(row_of(row["name"], "1 kHz and kernel records", row["ours"], f"{100 * row['unresolved']:.1f}"))
        lines.append(row_of(row["name"], "10 kHz and kernel records", row["fast"], f"{100 * row['fast_unresolved']:.1f}"))
        lines.append(row_of(row["name"], "10 kHz samples alone", row["alone"], ""))
    return gains.table(["program", "from", "tensor", "memory", "issue", "latency, occupancy", "idle", "lowered clock", "unresolved"], lines)


def division(name: str) -> Check:
    def check(suite: Suite) -> Iterator[Result]:
        prefix = f"division.{name}"
        command = suite.python("train.py", name, "--steps", str(PROGRAMS[name]), "--repetitions", "1")
        found = {}
        for rate in (USUAL, FAST):
            run = suite.run(f"division-{name}-{rate.replace(':', '-')}", command, Mode.VARIABLE, {VARIABLE: rate})
            if run.code != 0 and "ModuleNotFoundError" in run.stderr:
                yield skipped(prefix, run.stderr.strip().splitlines()[-1])
                return
            trace = single(suite, run)
            if limits_of(trace) is None and (why := refusal(trace)):
                yield skipped(prefix, f"no samples: {why}")
                return
            found[rate] = trace
        yield from judged(suite, prefix, name, found[USUAL], found[FAST])

    return Check(f"division.{name}", check, credit=CREDIT)


def judged(suite: Suite, prefix: str, name: str, usual: Trace, fast: Trace) -> Iterator[Result]:
    limits, fast_limits = limits_of(usual), limits_of(fast)
    if not limits or not fast_limits:
        yield expect(prefix, False, f"no compute_limits in the report at {USUAL if not limits else FAST}")
        return
    samples = samples_of(suite, fast)
    length = statistics.median(sample.end - sample.start for sample in samples) if samples else 0
    yield expect(
        f"{prefix}.samples", len(samples) >= FEWEST and 0 < length <= SHORT, f"{len(samples)} samples of {length / 1e3:.0f} us")
    kernels = [(int(start), int(end)) for start, end in query(suite, fast, "select start_ns, end_ns from kernels order by start_ns")]
    alone = by_samples(samples, merged(kernels), float(fast_limits.get("highest_clock_hz") or 0))
    (ours, unresolved), (theirs, fast_unresolved) = by_report(limits), by_report(fast_limits)
    if not theirs or not ours or not alone:
        yield expect(prefix, False, f"nothing is told apart: {limits['steady_ns']}, {len(kernels)} kernels, {len(samples)} samples")
        return
    suite.record("division", {"name": name, "ours": ours, "unresolved": unresolved, "fast": theirs, "fast_unresolved": fast_unresolved, "alone": alone,
                              "samples": len(samples)})
    points = differences(ours, theirs)
    worst = PARTS[points.index(max(points))]
    yield expect(
        prefix, statistics.median(points) <= LIMIT,
        f"median difference of the parts {statistics.median(points):.1f} points, largest {max(points):.1f} ({worst}), limit {LIMIT}; "
        f"unresolved {unresolved:.1%} and {fast_unresolved:.1%}")


def write_table(suite: Suite) -> Iterator[Result]:
    rows = list({row["name"]: row for row in suite.recorded("division")}.values())
    if not rows:
        yield skipped("division.table", "nothing was measured")
        return
    text = table(rows)
    (suite.out / "division.md").write_text(text)
    print(text, flush=True)
    yield expect("division.table", len(rows) == len(PROGRAMS), f"{len(rows)} of {len(PROGRAMS)} programs, in division.md")


def checks() -> list[Check]:
    # The last one measures nothing: it needs no device time.
    return [*(division(name) for name in PROGRAMS), Check("division.table", write_table, credit=-1e9)]
