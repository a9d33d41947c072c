"""Source lines inside kernels: programs by nvcc, nvrtc and Triton whose kernels wait at a marked line. Sampling changes
neither their output nor, measurably, their time, and none of many runs hangs or crashes.
"""

from __future__ import annotations

import collections
import importlib.util
import json
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Generator, Iterator, Sequence

from harness import Check, Mode, Result, Run, Suite, expect, skipped

ROUNDS = 4_000
SECONDS = 6
# A hang must be detected soon: the programs take some 6 to 9 s.
LIMIT = 40.0
# Share of a kernel's waiting samples at the marked line: the loop around it waits a little, too.
AT_THE_LINE = 0.5
# Below this number of samples there is no result: a busy GPU delivers some 100,000 per second.
FEW = 1_000
# Total time that sampling may add: opening and closing delay launches once.
ADDED_SECONDS = 2.0
# For the check with many runs: runs, launching threads, rounds of all threads, the window, and the maximum duration of
# a run relative to the bare program before it is killed. Each thread launches an eighth of the work, so that all are
# outside CUDA often enough for sampling to start; the rounds take some 4 s.
RUNS = 8
LAUNCHING = 8
SHORT_ROUNDS = 16_000
WINDOW = "200ms"
TIMES_BARE = 4.0


def marked(source: pathlib.Path) -> dict[str, int]:
    """Kernel -> its marked line. The instruction that needs a value waits for it: there, or a line below."""
    found = {}
    for number, line in enumerate(source.read_text().splitlines(), 1):
        if mark := re.search(r"(?://|#) HOT (\w+)", line):
            found[mark[1]] = number
    return found


def judged(name: str, report: dict, source: pathlib.Path) -> Iterator[Result]:
    """Results for the kernels of a source file in `gpuwhy kernels --source --json`."""
    reported = report.get("source") or {}
    outcomes, samples = reported.get("outcomes"), reported.get("samples", 0)
    lost = reported.get("lost_samples", 0) + reported.get("foreign_samples", 0)
    yield expect(f"kernels.source.{name}.sampled", outcomes == ["measured"] and samples >= FEW,
                 f"{outcomes}, {reported.get('reasons')}, {samples} samples, {lost} lost or of others, "
                 f"{reported.get('buffer_overflows')} overflows, {reported.get('lost_modules')} modules lost")
    for kernel, line in marked(source).items():
        function = next((of for of in reported.get("functions", []) if of["name"].startswith(kernel)), None)
        if function is None or not function["lines"]:
            yield expect(f"kernels.source.{name}.{kernel}", False, "no samples" if function is None else "no lines")
            continue
        waits = [of for of in function["lines"] if of["line"] in (line, line + 1) and pathlib.Path(of["file"]).name == source.name]
        share = sum(of["waiting_share"] for of in waits)
        top = max(function["lines"], key=lambda of: of["waiting_samples"])
        reasons = sorted(function["stalls"].items(), key=lambda of: -of[1])[:3]
        yield expect(f"kernels.source.{name}.{kernel}", share >= AT_THE_LINE,
                     f"{share:.0%} of the waiting at line {line}; most at {top['file']}:{top['line']}; {reasons}, "
                     f"{function['samples']} samples; SASS {'there' if function['instructions'][0]['sass'] else 'not there'}")


    if barrier := next((of for of in reported.get("functions", []) if of["name"].startswith("k_barrier")), None):
        waits = {reason: count for reason, count in barrier["stalls"].items() if reason != "selected"}
        yield expect(f"kernels.source.{name}.k_barrier", max(waits, key=waits.get, default=None) == "barrier",
                     f"{sorted(waits.items(), key=lambda of: -of[1])[:3]}")


def sampled(suite: Suite, name: str, command: Sequence[object], source: pathlib.Path) -> Generator[Result, None, bool]:
    """Results for a program; returns True if it ended."""
    folder = suite.folder(f"kernel-source-{name}")
    run = suite.run(f"kernel-source-{name}", [suite.gpuwhy, "kernels", "--source", "--top", "1", "--output", folder, "--json", "--",
                                             *command], limit=LIMIT)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    yield expect(f"kernels.source.{name}.ends", run.code == 0 and bool(lines), f"{run.ending()}: {run.stderr.strip()[-300:]}")
    if run.code is None or not lines:
        return False
    yield from judged(name, json.loads(lines[-1]), source)
    modules = list(folder.glob("*.cubins/*.cubin"))
    private = all(path.stat().st_mode & 0o77 == 0 for path in modules)
    total = sum(path.stat().st_size for path in modules)
    yield expect(f"kernels.source.{name}.modules", bool(modules) and private, f"{len(modules)} modules, {total} bytes")
    return True


def built(suite: Suite, check: str) -> Generator[Result, None, pathlib.Path | None]:
    """The program by nvcc, compiled once; `None` if that is not possible, with a result that says so."""
    program = suite.scratch / "gather"
    if program.exists():
        return program
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not pathlib.Path(nvcc).exists():
        yield skipped(f"{check}.nvcc", "nvcc is neither on the PATH nor in /usr/local/cuda/bin")
        return None
    build = suite.run("nvcc", [nvcc, "-O2", "-Xcompiler", "-pthread", "-lineinfo", "-arch=native", "-o", program, suite.workloads / "gather.cu"])
    yield expect(f"{check}.build", build.code == 0, build.stderr.strip()[-300:])
    return program if build.code == 0 else None


def by_nvcc(suite: Suite) -> Iterator[Result]:
    program = yield from built(suite, "kernels.source")
    if program is None:
        return
    bare = suite.bare("kernel-source", [program, str(ROUNDS)])
    # If it hangs with one thread, it is not tried with two, and its time is not measured.
    if not (yield from sampled(suite, "nvcc", [program, str(ROUNDS)], suite.workloads / "gather_kernels.cuh")):
        return
    yield from sampled(suite, "threads", [program, str(ROUNDS), "2"], suite.workloads / "gather_kernels.cuh")
    took = lambda run: float(re.search(r"took ([\d.]+) s", run.stderr)[1])
    command = [suite.gpuwhy, "run", "--report", "off", "--", program, str(ROUNDS)]
    plain = suite.run("kernel-source-plain", command, limit=LIMIT)
    with_them = suite.run("kernel-source-cost", command, extra={"GPUWHY_KERNEL_SOURCE": "on"}, limit=LIMIT)
    if with_them.code != 0 or plain.code != 0:
        yield expect("kernels.source.cost", False, f"plain: {plain.ending()}; with program counters: {with_them.ending()}")
        return
    times = [took(run) for run in (bare, plain, with_them)]
    yield expect("kernels.source.cost", times[2] < times[1] + ADDED_SECONDS,
                 "bare {:.3f} s, traced {:.3f} s, with program counters {:.3f} s".format(*times))


def by_python(suite: Suite) -> Iterator[Result]:
    for name, package in (("nvrtc", "torch"), ("triton", "triton")):
        if importlib.util.find_spec(package) is None:
            yield skipped(f"kernels.source.{name}", f"this Python has no {package}")
            continue
        script = suite.workloads / f"gather_{name}.py"
        source = script if name == "triton" else suite.workloads / "gather_kernels.cuh"
        _ = yield from sampled(suite, name, [sys.executable, script, str(SECONDS)], source)


def lacking(suite: Suite, check: str) -> Iterator[Result]:
    """A result if this build has no PC sampling."""
    if "no PC sampling" in suite.run(f"{check}.asked", [suite.gpuwhy, "kernels", "--source", "--", "true"]).stderr:
        yield skipped(check, "this build has no PC sampling: cargo build --release --workspace --features pc-sampling")


def kernel_source(suite: Suite) -> Iterator[Result]:
    """The lines are the marked ones, with every compiler."""
    if lines := list(lacking(suite, "kernels.source")):
        yield from lines
        return
    os.environ.setdefault("VIRTUAL_ENV", sys.prefix)
    yield from by_nvcc(suite)
    yield from by_python(suite)


def samples_of(suite: Suite, run: Run) -> tuple[list[str], int]:
    """Outcome of sampling on each device, and number of samples, from the trace of a run."""
    traces = run.traces()
    if len(traces) != 1:
        return [f"{len(traces)} traces"], 0
    shown = suite.run("kernel-source-shown", [suite.gpuwhy, "kernels", "--source", "--json", traces[0]])
    if shown.code != 0:
        return [f"not readable: {shown.stderr.strip()[-100:]}"], 0
    reported = json.loads(shown.stdout)["source"]
    return reported["outcomes"], reported["samples"]


def judged_runs(name: str, bare: Run, runs: Sequence[Run], found: Sequence[tuple[list[str], int]]) -> Iterator[Result]:
    """Results for runs with PC sampling compared with one without, and the outcome of sampling in each."""
    hung = sum(run.code is None for run in runs)
    endings = collections.Counter(run.ending() for run in runs)
    yield expect(f"{name}.ends", all(run.code == 0 for run in runs),
                 f"{hung} of {len(runs)} did not end; " + ", ".join(f"{count} x {ending}" for ending, count in endings.items()))
    other = sum(run.stdout != bare.stdout for run in runs)
    yield expect(f"{name}.output", other == 0, f"{other} of {len(runs)} print something else than {bare.stdout.strip()!r}")
    seconds = sorted(run.seconds for run in runs)
    yield expect(f"{name}.time", seconds[-1] <= TIMES_BARE * bare.seconds,
                 f"bare {bare.seconds:.2f} s, with program counters {seconds[0]:.2f} to {seconds[-1]:.2f} s")
    reported = ", ".join(f"{samples} ({' '.join(outcomes)})" for outcomes, samples in found)
    yield expect(f"{name}.samples", all(outcomes == ["measured"] and samples >= FEW for outcomes, samples in found), reported)


def repeated(suite: Suite) -> Iterator[Result]:
    """Repeated short windows in a program with many launching threads."""
    name = "kernels.source.repeated"
    if lines := list(lacking(suite, name)):
        yield from lines
        return
    program = yield from built(suite, name)
    if program is None:
        return
    command = [program, str(SHORT_ROUNDS), str(LAUNCHING), str(LAUNCHING)]
    # The first run loads the driver's files; the second one is the reference.
    _ = suite.bare("kernel-source-repeated-first", command)
    bare = suite.bare("kernel-source-repeated", command)
    extra = {"GPUWHY_KERNEL_SOURCE": WINDOW, "GPUWHY_REPORT": "off"}
    runs = [suite.run(f"kernel-source-repeated-{number}", command, Mode.COMMAND, extra, limit=TIMES_BARE * bare.seconds)
            for number in range(RUNS)]
    yield from judged_runs(name, bare, runs, [samples_of(suite, run) for run in runs])


def checks() -> list[Check]:
    return [Check("kernels.source", kernel_source, credit=160.0), Check("kernels.source.repeated", repeated, credit=80.0)]
