"""NVML readings and hardware counters: their overhead, that they arrive, their values, and refusals.

Overheads are compared in rounds: in each round every setting of GPUWHY_GPU_METRICS has one run, in rotating order. The
setting `off` is the reference, so that the overhead of records is on both sides.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import pathlib
import re
import statistics
import time
from collections.abc import Iterator

from harness import Check, Mode, Result, Run, Suite, expect, skipped
from trace_report import Trace, single

VARIABLE = "GPUWHY_GPU_METRICS"
ROUNDS = 5
SETTINGS = ("off", "gauges", "on", "on:1000")
THREAD = "gpuwhy-counters"
# Share of a core that the thread may take in addition to opening, by setting; opening takes 0.2 to 0.4 s once.
THREAD_LIMITS = {"gauges": 0.005, "on": 0.0125, "on:1000": 0.06}
OPENING_S = 0.6
# Time with a setting over time with `off`, median of the rounds.
COST_LIMIT = 1.005
# Maximum host memory for sampling, bytes.
MEMORY_LIMIT = 150e6
BUSY_WORDS = "another tool has the GPU's counters"


@dataclasses.dataclass(frozen=True)
class Program:
    command: list[str]
    is_torch: bool = False


def programs(suite: Suite) -> dict[str, Program]:
    bench = str(suite.microbench)
    return {
        "launch": Program([bench, "launch", "200000", "--reps", "9"]),
        "graph": Program([bench, "graph", "1000", "200", "--reps", "9"]),
        "sm": Program([bench, "sm", "20000", "--reps", "9"]),
        "gpt": Program(suite.python("train.py", "gpt", "--steps", "60"), True),
    }


def time_of(run: Run) -> float:
    """Time that a program printed, in its own unit; 0 if it did not."""
    match = re.search(r"time_per_operation_ns=([\d.]+)", run.stdout) or re.search(r'"ms_per_step": ([\d.]+)', run.stdout)
    return float(match[1]) if match else 0.0


def thread_seconds(pid: int) -> float | None:
    """CPU time of the thread that reads counters; None if there is none."""
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        try:
            if (task / "comm").read_text().strip() == THREAD:
                fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError):
            continue
    return None


def peak_bytes(pid: int) -> int:
    """Peak memory of a process; 0 once it has ended."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def memory(suite: Suite) -> Iterator[Result]:
    """Additional host memory of a program that is sampled, compared with the same program without samples."""
    command = [str(suite.microbench), "sm", "20000", "--reps", "12"]
    peaks, codes = {}, set()
    for setting in ("gauges", "on", "on:1000"):
        began = time.monotonic()
        process, folder = suite.start(f"memory-{setting.replace(':', '-')}", command, Mode.VARIABLE, {VARIABLE: setting})
        peak = 0
        while process.poll() is None and time.monotonic() - began < 120:
            peak = max(peak, peak_bytes(process.pid))
            time.sleep(0.02)
        codes.add(suite.finish(process, folder, began).code)
        peaks[setting] = peak
    suite.record("counters_memory", peaks)
    yield expect("counters.memory.runs", codes == {0} and min(peaks.values()) > 0, f"exit codes {sorted(codes, key=str)}, {peaks}")
    for setting in ("on", "on:1000"):
        more = peaks[setting] - peaks["gauges"]
        yield expect(
            f"counters.memory.{setting}", more <= MEMORY_LIMIT, f"{more / 1e6:.0f} MB above {peaks['gauges'] / 1e6:.0f}, limit {MEMORY_LIMIT / 1e6:.0f} MB")


def watched(suite: Suite, name: str, command: list[str], mode: Mode, extra: dict[str, str]) -> tuple[Run, float]:
    """A run, and the CPU time of its thread shortly before the end."""
    began = time.monotonic()
    process, folder = suite.start(name, command, mode, extra)
    spent = 0.0
    while process.poll() is None and time.monotonic() - began < 120:
        spent = thread_seconds(process.pid) or spent
        time.sleep(0.02)
    return suite.finish(process, folder, began), spent


def judged_cost(name: str, ratios: list[float]) -> Result:
    """The smallest and the largest ratio of five rounds enclose the true median in 94 of 100 cases. Launches vary by
    some percent: if the rounds neither keep the limit nor exclude it, the check is skipped."""
    ratios = sorted(ratios)
    middle = statistics.median(ratios)
    text = f"{middle:.4f} of the time without, by round {ratios[0]:.4f} to {ratios[-1]:.4f}, limit {COST_LIMIT}"
    if middle > COST_LIMIT >= ratios[0]:
        return skipped(name, f"the rounds scatter too much to tell: {text}")
    return expect(name, middle <= COST_LIMIT, text)


def cost(name: str) -> Check:
    def check(suite: Suite) -> Iterator[Result]:
        program = programs(suite)[name]
        if program.is_torch and suite.run("torch", ["python3", "-c", "import torch"]).code != 0:
            yield skipped(f"counters.cost.{name}", "PyTorch is not installed")
            return
        times: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
        shares: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
        codes: set[int | None] = set()
        for number in range(ROUNDS):
            order = SETTINGS[number % len(SETTINGS):] + SETTINGS[:number % len(SETTINGS)]
            for setting in order:
                run, spent = watched(suite, f"{name}-{setting.replace(':', '-')}", program.command, Mode.VARIABLE, {VARIABLE: setting})
                codes.add(run.code)
                times[setting].append(time_of(run))
                shares[setting].append(max(0.0, spent - OPENING_S) / run.seconds)
        suite.record("counters_cost", {"name": name, "times": times, "shares": shares})
        done = codes == {0} and all(value > 0 for values in times.values() for value in values)
        yield expect(f"counters.cost.{name}.runs", done, f"exit codes {sorted(codes, key=str)}")
        if not done:
            return
        for setting in SETTINGS[1:]:
            yield judged_cost(f"counters.cost.{name}.{setting}", [found / off for found, off in zip(times[setting], times["off"])])
            share = statistics.median(shares[setting])
            yield expect(
                f"counters.cost.{name}.{setting}.thread", share <= THREAD_LIMITS[setting],
                f"{share:.2%} of a core beside opening, limit {THREAD_LIMITS[setting]:.2%}")

    return Check(f"counters.cost.{name}", check, credit=90.0)


def query(suite: Suite, trace: Trace, sql: str) -> list[list[str]]:
    """Rows of a query, as texts."""
    run = suite.run("query", [suite.gpuwhy, "query", "--format", "csv", trace.path, sql])
    return rows(run.stdout)


def rows(text: str) -> list[list[str]]:
    """Rows of a table in CSV, without the names of its columns."""
    return list(csv.reader(io.StringIO(text)))[1:]


def means(suite: Suite, trace: Trace) -> dict[str, tuple[int, float]]:
    """Number and mean of the values of each metric."""
    found = query(suite, trace, "select metric, count(*), avg(value) from gpu_metrics group by metric")
    return {metric: (int(count), float(mean)) for metric, count, mean in found}


def training(suite: Suite) -> list[str]:
    """A program that keeps the GPU busy for some seconds: the GPT, or 20 us kernels."""
    if suite.run("torch", ["python3", "-c", "import torch"]).code == 0:
        return suite.python("train.py", "gpt", "--steps", "60")
    return [str(suite.microbench), "sm", "20000", "--reps", "15"]


def samples(suite: Suite) -> Iterator[Result]:
    """`GPUWHY_GPU_METRICS=on` under `gpuwhy run`."""
    run = suite.run("samples", training(suite), Mode.COMMAND, {VARIABLE: "on"})
    yield expect("counters.samples.run", run.code == 0, run.ending())
    trace = single(suite, run)
    found = means(suite, trace)
    suite.record("counters_means", {"means": found, "seconds": run.seconds})
    wanted = ["core_clock", "sm_active", "issue", "tensor", "dram", "l2", "l1", "warps_active", "dram_read", "dram_write"]
    missing = [metric for metric in wanted if metric not in found]
    yield expect("counters.samples.metrics", not missing, f"missing {missing}; {found}")
    if missing:
        return
    count, active = found["sm_active"]
    spans = query(
        suite, trace, "select (max(end_ns) - min(start_ns)) / 1e9, avg(end_ns - start_ns) from gpu_metrics where metric = 'sm_active'")
    lasted, interval = (float(text) for text in spans[0])
    yield expect(
        "counters.samples.all", count >= 0.97 * lasted * 1e9 / interval,
        f"{count} samples of {interval:.0f} ns in {lasted:.2f} s of a run of {run.seconds:.2f} s")
    yield expect("counters.samples.active", 5 < active <= 100, f"multiprocessors active {active:.1f} %")
    clock = found["core_clock"][1]
    yield expect("counters.samples.clock", 3e8 < clock < 3.5e9, f"{clock / 1e9:.3f} GHz")
    shares = {name: found[name][1] for name in wanted[1:8]}
    yield expect("counters.samples.percent", all(-0.5 <= value <= 101 for value in shares.values()), str(shares))
    losses = trace.completeness.get("counters", trace.report.get("counters", []))
    lost = [loss for loss in losses if loss["lost"] or loss["incomplete"] or loss["sentence"]]
    yield expect("counters.samples.whole", not lost and bool(losses), str(losses))
    kernels = trace.records("kernels")
    yield expect("counters.samples.kernels", kernels > 0 and not trace.losses(), f"{kernels} kernels, losses {trace.losses()}")


def division(suite: Suite) -> Iterator[Result]:
    """The computation of a GPT, divided by its limits; the values are for reading and must sum up."""
    run = suite.run("division", training(suite), Mode.COMMAND, {VARIABLE: "on:1000"})
    trace = single(suite, run)
    devices = [device for device in trace.report["devices"] if device.get("compute_limits")]
    if not devices:
        yield expect("counters.division", False, "no device has compute_limits in its report")
        return
    limits = devices[0]["compute_limits"]
    steady = limits["steady_ns"]
    compute = devices[0]["steady_leaves"].get("compute", 0)
    total = sum(steady.values())
    shares = ", ".join(f"{name} {value / total:.1%}" for name, value in steady.items() if value) if total else "nothing"
    suite.record("counters_division", {"limits": limits})
    yield expect("counters.division.sums", total == compute, f"{total} ns divided of {compute} ns of computation: {shares}")


def gauges(suite: Suite) -> Iterator[Result]:
    """The bare variable enables NVML readings only."""
    run = suite.run("gauges", training(suite), Mode.VARIABLE)
    found = means(suite, single(suite, run))
    rate = found.get("power", (0, 0.0))[0] / run.seconds
    text = ", ".join(f"{name} {mean:.4g}" for name, (_, mean) in found.items())
    plausible = 20 < found.get("power", (0, 0.0))[1] < 2000 and 100 < found.get("sm_clock", (0, 0.0))[1] < 4000
    yield expect("counters.gauges", run.code == 0 and plausible and rate > 3, f"{rate:.1f} readings a second; {text}")
    yield expect("counters.gauges.only", "sm_active" not in found, f"{sorted(found)}")


def refusals(suite: Suite) -> Iterator[Result]:
    """Two processes request the counters of one GPU: the second is refused with a message, and both continue."""
    command = [str(suite.microbench), "sm", "20000", "--reps", "25"]
    began = time.monotonic()
    first, folder = suite.start("first", command, Mode.VARIABLE, {VARIABLE: "on"})
    time.sleep(2.5)
    second = suite.run("second", [str(suite.microbench), "sm", "20000", "--reps", "6"], Mode.VARIABLE, {VARIABLE: "on"})
    still = first.poll() is None
    run = suite.finish(first, folder, began)
    yield expect("counters.refused.runs", still and (run.code, second.code) == (0, 0), f"{run.ending()}, {second.ending()}")
    yield expect("counters.refused.said", BUSY_WORDS in second.stderr, second.stderr.strip()[-300:])
    yield expect("counters.refused.first", BUSY_WORDS not in run.stderr, run.stderr.strip()[-300:])
    kernels = [single(suite, found).records("kernels") for found in (run, second)]
    yield expect("counters.refused.records", min(kernels) > 0, f"kernels {kernels}")
    found = [means(suite, single(suite, found)).get("sm_active", (0, 0.0))[0] for found in (run, second)]
    yield expect("counters.refused.samples", found[0] > 0 and found[1] == 0, f"samples {found}")


def endings(suite: Suite) -> Iterator[Result]:
    """A short program is not delayed, and a capture has samples of its interval."""
    command = [str(suite.microbench), "init"]
    seconds = {
        setting: statistics.median(suite.run(f"init-{setting}", command, Mode.VARIABLE, {VARIABLE: setting}).seconds for _ in range(5))
        for setting in ("off", "auto", "on")}
    yield expect(
        "counters.endings.short", seconds["auto"] - seconds["off"] < 0.15 and seconds["on"] - seconds["off"] < 1.0,
        ", ".join(f"{setting} {value:.3f} s" for setting, value in seconds.items()))
    run = suite.run(
        "captured", [str(suite.microbench), "sm", "20000", "--reps", "15"], Mode.VARIABLE,
        {VARIABLE: "on", "GPUWHY_DELAY": "1s", "GPUWHY_DURATION": "2s", "GPUWHY_CAPTURE_RANGE_END": "stop"})
    trace = single(suite, run)
    count = means(suite, trace).get("sm_active", (0, 0.0))[0]
    yield expect("counters.endings.capture", run.code == 0 and 100 < count < 1000, f"{count} samples of a capture of 2 s at 200 Hz")
    doctor = suite.run("doctor", [suite.gpuwhy, "doctor", "--json"])
    lines = [check for check in json.loads(doctor.stdout)["checks"] if check["name"] == "GPU counters"]
    yield expect("counters.doctor", any(line["status"] == "ok" for line in lines), str(lines))


def checks() -> list[Check]:
    """Samples first: without them their overhead need not be measured."""
    return [
        Check("counters.samples", samples, credit=60.0),
        Check("counters.gauges", gauges, credit=40.0),
        Check("counters.refused", refusals, credit=40.0),
        Check("counters.endings", endings, credit=60.0),
        Check("counters.memory", memory, credit=60.0),
        Check("counters.division", division, credit=60.0),
        *(cost(name) for name in ("launch", "graph", "sm", "gpt")),
    ]
