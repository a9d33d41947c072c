"""API calls in stretches (GPUWHY_API_CALLS=stretches): what they cost beside all calls, device work alone and nothing.

Variants take turns within a round, in an order that changes from round to round. `kernels` is CUPTI recording device work
alone, read by nobody (benches/gpu/floor.cpp): less than that no recording of kernels can cost. The first second of
a program, in which all calls are recorded, is not counted. Both checks together take two minutes.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Iterator

from harness import REPOSITORY, Check, Mode, Result, Run, Suite, expect, skipped
from prepared import READY_LIMIT, Failed, Missing, Plan, Prepared, finish_all
from trace_report import single

# The aims: an empty launch beside kernel records alone, and a step of tiny kernels beside the bare program.
LAUNCH_LIMIT = 1.02
MLP_LIMIT = 1.07
# Causes that are estimated, and how far their shares may be from those of a run with all calls.
CAUSES = ("dispatch", "launch_api", "sync_drain")
LAUNCH_ROUNDS = 3
# Repetitions of 0.7 s or more; those of the first second and a half are left out.
LAUNCHES = ["launch", "300000", "--reps", "5"]
LEFT_OUT = 2
MLP_ROUNDS = 4
# Some 2.5 s a turn; the first turn is left out.
MLP = ["mlp", "--steps", "900", "--repetitions", "1", "--warmup", "10"]
STRETCHES = {"GPUWHY_API_CALLS": "stretches"}


def variants(suite: Suite) -> dict[str, tuple[Mode, dict[str, str]]]:
    """How the program is started, by variant.

    Raises FileNotFoundError without g++ or a CUDA toolkit.
    """
    floor = suite.compile_injection(REPOSITORY / "benches" / "gpu" / "floor.cpp")
    kernels = {"CUDA_INJECTION64_PATH": str(floor), "FLOOR_RECORDS": "kernels", "FLOOR_FLUSH_MS": "100"}
    return {"bare": (Mode.BARE, {}), "kernels": (Mode.BARE, kernels), "stretches": (Mode.VARIABLE, STRETCHES),
            "light": (Mode.VARIABLE, {})}


def in_turn(names: list[str], number: int) -> list[str]:
    """The order of a round: another one is first each time."""
    turn = number % len(names)
    return names[turn:] + names[:turn]


def ratios(times: dict[str, list[float]], variant: str, base: str) -> list[float]:
    """Time of a variant over that of another one, by round."""
    return [time / of for time, of in zip(times[variant], times[base])]


def table(name: str, unit: str, times: dict[str, list[float]]) -> str:
    """Medians over rounds and their range, beside the bare program and beside kernel records alone."""
    lines = [f"| {name} | {unit} | of bare | of kernel records alone |", "|---|---|---|---|"]
    for variant, found in times.items():
        cells = [f"{statistics.median(found):.4g} ({min(found):.4g} to {max(found):.4g})"]
        for base in ("bare", "kernels"):
            of = ratios(times, variant, base)
            cells.append(f"{statistics.median(of):.3f} ({min(of):.3f} to {max(of):.3f})")
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def judged(suite: Suite, name: str, unit: str, times: dict[str, list[float]], base: str, limit: float) -> Result:
    print(table(name, unit, times), flush=True)
    suite.record("stretches", {"name": name, "times": times})
    of = ratios(times, "stretches", base)
    light = statistics.median(ratios(times, "light", base))
    return expect(f"stretches.{name}.cost", statistics.median(of) <= limit,
                  f"{statistics.median(of):.3f} of {base} ({min(of):.3f} to {max(of):.3f}), light {light:.3f}; aim {limit}")


def time_of_launches(run: Run) -> float:
    """Nanoseconds an empty launch, over the repetitions that count.

    Raises Failed without figures.
    """
    match = re.search(r"repetitions_ns=([\d.,]+)", run.stdout)
    found = [float(part) for part in match[1].split(",")][LEFT_OUT:] if match else []
    if run.code != 0 or not found:
        raise Failed(f"{run.ending()}: {run.stderr.strip()[-150:]}")
    return statistics.mean(found)


def launch(suite: Suite) -> Iterator[Result]:
    """Empty launches."""
    try:
        ways = variants(suite)
    except FileNotFoundError as error:
        yield skipped("stretches.launch", str(error))
        return
    times: dict[str, list[float]] = {variant: [] for variant in ways}
    reports = {}
    for number in range(LAUNCH_ROUNDS):
        for variant in in_turn(list(ways), number):
            mode, extra = ways[variant]
            run = suite.run(f"stretches-launch-{variant}-{number}", [suite.microbench, *LAUNCHES], mode, extra)
            times[variant].append(time_of_launches(run))
            if mode is Mode.VARIABLE and number == 0:
                reports[variant] = (single(suite, run).report, issued(run.stdout))
    yield judged(suite, "launch", "ns a launch", times, "kernels", LAUNCH_LIMIT)
    report, kernels = reports["stretches"]
    found = report["completeness"]["records"]["kernels"]
    yield expect("stretches.launch.kernels", found == kernels, f"{found} of {kernels} kernels are recorded")
    yield from estimated("launch", report, reports["light"][0])


def issued(printed: str) -> int:
    """Kernels that the program says it launched."""
    match = re.search(r"kernels=(\d+)", printed)
    return int(match[1]) if match else 0


def estimated(name: str, report: dict, light: dict) -> Iterator[Result]:
    """The report says what is estimated; its shares beside those of another run, in which all calls were recorded."""
    told = [device["estimated"] for device in report["devices"] if device.get("estimated")]
    yield expect(f"stretches.{name}.told", bool(told), f"estimated: {json.dumps(told)[:400]}")
    own, full = (shares(one) for one in (report, light))
    apart = {cause: abs(own[cause] - full[cause]) for cause in CAUSES}
    # Runs differ by more than estimates do: how far estimates are off is tested on recordings, where both are known.
    yield expect(f"stretches.{name}.shares", True, "; ".join(
        f"{cause} {own[cause]:.3f}, with all calls {full[cause]:.3f}" for cause in CAUSES) + f"; most apart {max(apart.values()):.3f}")


def shares(report: dict) -> dict[str, float]:
    """Shares of the time after start-up by cause, over all devices."""
    leaves: dict[str, int] = {}
    for device in report["devices"]:
        for leaf, nanos in device["steady_leaves"].items():
            leaves[leaf] = leaves.get(leaf, 0) + nanos
    total = sum(leaves.values()) or 1
    return {cause: leaves.get(cause, 0) / total for cause in CAUSES}


def mlp(suite: Suite) -> Iterator[Result]:
    """Steps of 280 tiny kernels, by processes that have loaded PyTorch and take turns."""
    try:
        ways = variants(suite)
    except FileNotFoundError as error:
        yield skipped("stretches.mlp", str(error))
        return
    programs = {
        variant: Prepared(suite, f"stretches-mlp-{variant}", Plan(suite.workloads / "train.py", MLP, "torch", mode, extra))
        for variant, (mode, extra) in ways.items()}
    times: dict[str, list[float]] = {variant: [] for variant in ways}
    try:
        for program in programs.values():
            program.wait_ready(time.monotonic() + READY_LIMIT)
        for number in range(1 + MLP_ROUNDS):
            for variant in in_turn(list(ways), number):
                found = re.search(r'"ms_per_step": ([\d.]+)', programs[variant].turn())
                if found is None:
                    raise Failed(f"{variant} printed no time")
                if number > 0:
                    times[variant].append(float(found[1]))
    except (Failed, Missing) as error:
        yield skipped("stretches.mlp", str(error)) if isinstance(error, Missing) else expect("stretches.mlp", False, str(error))
        return
    finally:
        finish_all(programs.values())
    yield judged(suite, "mlp", "ms a step", times, "bare", MLP_LIMIT)
    reports = {variant: single(suite, programs[variant].finish()).report for variant in ("stretches", "light")}
    kernels = {variant: report["completeness"]["records"]["kernels"] for variant, report in reports.items()}
    yield expect("stretches.mlp.kernels", kernels["stretches"] == kernels["light"], f"kernels by variant: {kernels}")
    yield from estimated("mlp", reports["stretches"], reports["light"])


def checks() -> list[Check]:
    return [Check("stretches.launch", launch, credit=60.0), Check("stretches.mlp", mlp, credit=75.0)]
