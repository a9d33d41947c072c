"""Overhead of an empty launch, in figures that are robust to noise on the host.

`launches.counted` counts instructions of the launching thread, which waits and other programs do not change, and its
time on a core. Variants alternate, each in a separate process, because CUPTI does not restore the full speed of a
launch once it has recorded. `launches.toggled` switches monitor mode on and off within one process, by command, and
compares each interval with the next one.
"""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
import time
from collections.abc import Iterator

from harness import REPOSITORY, Check, Mode, Result, Suite, expect, skipped
from prepared import Failed

# Variant -> its reference, and the maximum ratio to it. Aims: docs/design/overhead.md.
AIMS = {"monitor": ("bare", 1.005), "light": ("floor", 1.02)}
ROUNDS = 2
LAUNCHES = ["launch", "150000", "--reps", "8", "--measure"]
# Repetitions of half a second; the first ones are left out.
LEFT_OUT = 4
# Times are not judged on a host whose bare program varies by more than this.
SCATTER = 0.05

# Intervals of this many seconds with monitor mode, and without. Sampling ends two seconds after a capture, and the time
# before that is left out.
PAIRS = 4
INTERVAL = 5.0
LEFT_OUT_AFTER = 2.5
# Student's t, 3 degrees of freedom, 97.5 %: an interval of 95 % for the mean of four pairs.
QUANTILE = 3.182
TOGGLED_LIMIT = 1.005

LINE = re.compile(
    r"^repetition begin_s=([\d.]+) end_s=([\d.]+) ns=([\d.]+) thread_ns=([\d.]+) instructions=([\d.]+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Repetition:
    """A repetition: start and end in seconds of the monotonic clock, the rest per launch."""

    begin: float
    end: float
    ns: float
    thread_ns: float
    # 0 if the system does not count them.
    instructions: float


def repetitions(printed: str) -> list[Repetition]:
    """Output of microbench with --measure.

    Raises Failed if there is none.
    """
    found = [Repetition(*map(float, match.groups())) for match in LINE.finditer(printed)]
    if not found:
        raise Failed(f"no repetition in {printed[-150:]!r}")
    return found


def variants(suite: Suite) -> dict[str, tuple[Mode, dict[str, str]]]:
    """Start command of the program, by variant.

    Raises FileNotFoundError without g++ or a CUDA toolkit.
    """
    library = suite.compile_injection(REPOSITORY / "benches" / "gpu" / "floor.cpp")
    floor = {"CUDA_INJECTION64_PATH": str(library), "FLOOR_FLUSH_MS": "100"}
    monitor = {"GPUWHY_MODE": "monitor", "GPUWHY_GPU_METRICS": "on"}
    return {"bare": (Mode.BARE, {}), "light": (Mode.VARIABLE, {}), "floor": (Mode.BARE, floor), "monitor": (Mode.VARIABLE, monitor)}


def in_turn(names: list[str], number: int) -> list[str]:
    """The order of a round: a different variant is first each time."""
    turn = number % len(names)
    return names[turn:] + names[:turn]


def over(rounds: dict[str, list[float]], variant: str, base: str) -> tuple[float, float, float]:
    """Median ratio of a variant to another one, by round, with the smallest and the largest."""
    ratios = [one / other for one, other in zip(rounds[variant], rounds[base])]
    return statistics.median(ratios), min(ratios), max(ratios)


def counted(suite: Suite) -> Iterator[Result]:
    """Instructions and time of the launching thread by variant, with the reference of each variant."""
    try:
        ways = variants(suite)
    except FileNotFoundError as error:
        yield skipped("launches.counted", str(error))
        return
    instructions: dict[str, list[float]] = {variant: [] for variant in ways}
    thread_ns: dict[str, list[float]] = {variant: [] for variant in ways}
    for number in range(ROUNDS):
        for variant in in_turn(list(ways), number):
            mode, extra = ways[variant]
            run = suite.run(f"launches-{variant}-{number}", [suite.microbench, *LAUNCHES], mode, extra)
            kept = repetitions(run.stdout)[LEFT_OUT:]
            instructions[variant].append(statistics.median(one.instructions for one in kept))
            thread_ns[variant].append(statistics.median(one.thread_ns for one in kept))
    suite.record("launches", {"instructions": instructions, "thread_ns": thread_ns})
    bare = thread_ns["bare"]
    scatter = (max(bare) - min(bare)) / statistics.mean(bare)
    are_counted = min(instructions["bare"]) > 0
    print("launches: " + ", ".join(
        f"{variant} {statistics.median(instructions[variant]):.0f} instructions, {statistics.median(thread_ns[variant]):.0f} ns"
        for variant in ways), flush=True)
    for variant, (base, limit) in AIMS.items():
        of_time = "{:.3f} ({:.3f} to {:.3f}) of its time".format(*over(thread_ns, variant, base))
        if are_counted:
            ratio, least, most = over(instructions, variant, base)
            yield expect(f"launches.counted.{variant}", ratio <= limit,
                         f"{ratio:.4f} ({least:.4f} to {most:.4f}) of the instructions of {base}, {of_time}; aim {limit}")
        elif scatter <= SCATTER:
            yield expect(f"launches.counted.{variant}", over(thread_ns, variant, base)[0] <= limit,
                         f"{of_time}, with {base}; aim {limit}; this system counts no instructions")
        else:
            yield skipped(f"launches.counted.{variant}",
                          f"{of_time}, with {base}; this system counts no instructions, and bare runs scatter by {scatter:.1%}")


def by_interval(found: list[Repetition], toggles: list[float]) -> list[float]:
    """Nanoseconds per launch in each interval between two toggles: the median after the part that is left out."""
    parts = []
    for begin, end in zip(toggles, toggles[1:]):
        inside = [one.ns for one in found if one.begin >= begin + LEFT_OUT_AFTER and one.end <= end]
        if not inside:
            raise Failed(f"no repetition between {begin:.1f} and {end:.1f} s")
        parts.append(statistics.median(inside))
    return parts


def toggled(suite: Suite) -> Iterator[Result]:
    """Monitor mode on and off within one process."""
    interval_count = 2 * PAIRS
    command = [
        str(suite.microbench), "launch", "50000", "--reps", "1000000", "--seconds", str((interval_count + 1) * INTERVAL), "--measure"]
    began = time.monotonic()
    process, folder = suite.start(
        "launches-toggled", command, Mode.VARIABLE,
        {"GPUWHY_MODE": "monitor", "GPUWHY_GPU_METRICS": "on", "GPUWHY_CAPTURE_RANGE": "command", "GPUWHY_CAPTURE_RANGE_END": "none"})
    time.sleep(INTERVAL / 2)
    toggles = []
    for number in range(interval_count):
        reported = suite.run("toggle", [suite.gpuwhy, "stop" if number % 2 else "start", str(process.pid)])
        if reported.code != 0:
            process.kill()
            suite.finish(process, folder, began)
            yield expect("launches.toggled", False, f"{reported.ending()}: {(reported.stdout + reported.stderr).strip()[-200:]}")
            return
        toggles.append(time.monotonic())
        time.sleep(INTERVAL)
    toggles.append(time.monotonic())
    run = suite.finish(process, folder, began)
    parts = by_interval(repetitions(run.stdout), toggles)
    on, off = parts[0::2], parts[1::2]
    suite.record("toggled", {"on_ns": on, "off_ns": off})
    ratios = [one / other for one, other in zip(on, off)]
    mean, error = statistics.mean(ratios), QUANTILE * statistics.stdev(ratios) / math.sqrt(PAIRS)
    scatter = statistics.stdev(off) / statistics.mean(off)
    detail = f"{mean:.4f} +- {error:.4f} of a launch without, which scatters by {scatter:.1%}; aim {TOGGLED_LIMIT}"
    if scatter > SCATTER:
        yield skipped("launches.toggled", detail)
    else:
        yield expect("launches.toggled", mean <= TOGGLED_LIMIT and mean + error < 2 * TOGGLED_LIMIT - 1, detail)


def checks() -> list[Check]:
    return [Check("launches.counted", counted), Check("launches.toggled", toggled)]
