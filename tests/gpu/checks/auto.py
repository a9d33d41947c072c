"""Mode auto: both changes of a training's bottleneck are reported within 30 s, bursts are bounded, and the overhead.

The overhead is measured by the program itself: its median steps under mode auto over those without gpuwhy, by part and
round.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator

from harness import Check, Mode, Result, Run, Suite, expect
from trace_report import single

SECONDS = 45
EVERY = 120
SETTINGS = {"GPUWHY_MODE": "auto", "GPUWHY_GPU_METRICS": "auto", "GPUWHY_NATIVE_STACKS": "auto"}
EXPECTED = {"compute": "gpu_compute", "loading": "data_loading", "launch": "launch"}
WITHIN = 30.0
COST = 1.015
ROUNDS = 3
PART = re.compile(r"part (\w+) begun ([\d.]+) steps (\d+) first_ms ([\d.]+) last_ms ([\d.]+)")


def parts_of(run: Run) -> dict[str, dict[str, float]]:
    """Data that the program prints for each part: start time, number of steps, and their medians in milliseconds."""
    names = ("begun", "steps", "first", "last")
    return {found[1]: dict(zip(names, map(float, found.groups()[1:]))) for found in PART.finditer(run.stdout)}


def reported_after(report: dict, begun: float, cause: str) -> float | None:
    """Seconds from `begun` until the report enters the bottleneck at or after it (5 s before count as well)."""
    times = [change["at_unix_ns"] / 1e9 - begun for change in report["bursts"]["changes"] if change["cause"] == cause]
    return min((time for time in times if time > -5.0), default=None)


def most_bursts(seconds: float, every: float) -> int:
    """Maximum number of bursts: two, and one in each period."""
    return 2 + int(seconds / every)


def table(report: dict, parts: dict[str, dict[str, float]]) -> str:
    """The bursts as Markdown."""
    rows = ["| burst | begins after, s | why | lasts, s | bottleneck | share | kernels |", "|---|---|---|---|---|---|---|"]
    begin = min(part["begun"] for part in parts.values())
    for burst in report["bursts"]["rows"]:
        lasts = (burst["end_unix_ns"] - burst["begin_unix_ns"]) / 1e9
        rows.append(f"| {burst['capture']} | {burst['begin_unix_ns'] / 1e9 - begin:.1f} | {burst['trigger']} | {lasts:.2f} | "
                    f"{burst['bottleneck']} | {burst['share']:.2f} | {burst['kernels']} |")
    return "\n".join(rows)


def changes(suite: Suite) -> Iterator[Result]:
    """A training whose bottleneck changes twice."""
    run = suite.run("auto-changes", suite.python("changing.py", "--seconds", str(SECONDS)), Mode.VARIABLE, extra=SETTINGS)
    parts = parts_of(run)
    yield expect("auto.changes.exit", run.code == 0 and set(parts) == set(EXPECTED), run.ending())
    if set(parts) != set(EXPECTED):
        return
    report = single(suite, run).report
    print(table(report, parts), flush=True)
    for name, cause in EXPECTED.items():
        after = reported_after(report, parts[name]["begun"], cause)
        # The first part includes start-up, and the samples, which name no bottleneck before 2.5 s.
        yield expect(f"auto.changes.{name}", after is not None and after <= WITHIN, f"{cause} after {after} s")
    found = [change["cause"] for change in report["bursts"]["changes"]]
    yield expect("auto.changes.others", set(found) <= set(EXPECTED.values()), str(found))
    bursts, most = report["cost"]["bursts"], most_bursts(3 * SECONDS + 30, EVERY)
    yield expect("auto.bursts.bounded", 0 < bursts <= most, f"{bursts} of at most {most}")
    yield expect("auto.bursts.complete", all(row["kernels"] > 0 for row in report["bursts"]["rows"]), str(report["cost"]))
    share = report["cost"]["share_at_most"]
    yield expect("auto.bursts.budget", share <= 0.012, f"{share:.4f} of the time by gpuwhy's estimate")


def cost(suite: Suite) -> Iterator[Result]:
    """Steps of the same training with mode auto and without gpuwhy, by round."""
    command = suite.python("changing.py", "--seconds", "15")
    ratios: dict[str, list[float]] = {name: [] for name in EXPECTED}
    for number in range(ROUNDS):
        found = {}
        for mode in (Mode.BARE, Mode.VARIABLE) if number % 2 else (Mode.VARIABLE, Mode.BARE):
            extra = SETTINGS if mode is Mode.VARIABLE else {}
            found[mode] = parts_of(suite.run(f"auto-cost-{number}-{mode.name}", command, mode, extra=extra))
        for name in EXPECTED:
            if name in found[Mode.BARE] and name in found[Mode.VARIABLE]:
                ratios[name].append(found[Mode.BARE][name]["steps"] / max(1.0, found[Mode.VARIABLE][name]["steps"]))
    rows = ["| part | time a step, mode auto over bare, median (range) |", "|---|---|"]
    for name, values in ratios.items():
        if len(values) < ROUNDS:
            yield expect(f"auto.cost.{name}", False, f"{len(values)} of {ROUNDS} rounds said a time")
            continue
        middle = statistics.median(values)
        rows.append(f"| {name} | {middle:.3f} ({min(values):.3f} to {max(values):.3f}) |")
        yield expect(f"auto.cost.{name}", middle <= COST, f"{middle:.4f} of the bare time, {min(values):.4f} to {max(values):.4f}")
    print("\n".join(rows), flush=True)


def after(suite: Suite) -> Iterator[Result]:
    """Cost of launches after a burst: the report's interval against the program's own first and last third."""
    command = suite.python("changing.py", "--seconds", "60", "--parts", "launch")
    # Without samples the bottleneck is open, so a burst begins after 20 s, in the second third.
    extra = {**SETTINGS, "GPUWHY_GPU_METRICS": "off"}
    bare = parts_of(suite.run("auto-after-bare", command, Mode.BARE))
    # By the command, which enables NVTX: without named steps the report has no figure.
    run = suite.run("auto-after", command, Mode.COMMAND, extra=extra)
    found = parts_of(run)
    yield expect("auto.after.exit", run.code == 0 and "launch" in found and "launch" in bare, run.ending())
    if "launch" not in found or "launch" not in bare:
        return
    report = single(suite, run).report
    own, without = (part["launch"]["last"] / part["launch"]["first"] for part in (found, bare))
    low, high = (report["cost"].get(f"slowed_since_bursts_{end}") for end in ("low", "high"))
    reported = f"{own:.3f} by the program ({without:.3f} without gpuwhy), {low} to {high} by the report"
    print(f"| launches after a burst | {reported} |", flush=True)
    yield expect("auto.after.burst", report["cost"]["bursts"] == 1, str(report["cost"]))
    # 32 steps on each side, far apart: 3 % for other activity on the host.
    yield expect("auto.after.reported", low is not None and low - 0.03 <= own <= high + 0.03, reported)


def checks() -> list[Check]:
    return [
        Check("auto.changes", changes, credit=160.0),
        Check("auto.after", after, credit=150.0),
        Check("auto.cost", cost, credit=350.0),
    ]
