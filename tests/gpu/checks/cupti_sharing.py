"""Unusual conditions: another profiler in the process, no kernels, no CUDA, no writable folder."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator

from checks.transparency import compare
from harness import Check, Mode, Result, Run, Suite, expect, skipped
from trace_report import Trace, single

# The exit status of a workload whose profiler is not installed.
NOT_INSTALLED = 77


TOOLS = ("torch", "proton", "jax")
# A run has two sessions of one second each, and after each it takes half a second of quiet until recording continues.
MISSED_SECONDS = 2.0
# Share of the launches in its sessions that the other profiler must see: it may only miss those at its own start and
# end.
SEEN = 0.9


def said(run: Run, word: str) -> list[str]:
    """Lines that the program prints about its profiler, one text for each session."""
    return [line.removeprefix(f"{word} ") for line in run.stderr.splitlines() if line.startswith(f"{word} ")]


def beside(tool: str, policy: str) -> Check:
    """Another profiler in the program. `hold`: it may see no records, ours are complete. `yield`: it sees what it sees
    alone, and our report states what was missed meanwhile. A profiler that brings its own libcupti is refused by the
    driver even if gpuwhy yields: then, and only if two copies were in the process, ours must be complete and state why.
    A profiler that leaves its own clock in CUPTI ends our recording, which is reported and counted. Either way the
    program ends as it does without gpuwhy."""
    name = f"cupti_sharing.{tool}.{policy}"

    def check(suite: Suite) -> Iterator[Result]:
        command = suite.python("profiled.py", tool)
        # Otherwise JAX takes most of the device's memory, which other checks need.
        extra = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        if policy == "exclusive":
            # JAX launches graphs, whose kernels are counted here.
            extra["GPUWHY_CUDA_GRAPH_TRACE"] = "node"
        bare = suite.run(f"{tool}-bare", command, Mode.BARE, extra)
        if bare.code == NOT_INSTALLED:
            yield skipped(name, bare.stderr.strip().splitlines()[-1])
            return
        yield expect(f"{name}.bare", bare.code == 0, f"{bare.ending()}; alone {said(bare, tool)}")
        traced = suite.run(f"{tool}-{policy}", command, Mode.VARIABLE, {**extra, "GPUWHY_CUPTI_SHARING": policy})
        yield from compare(name, bare, traced, with_stderr=False)
        launched = json.loads(traced.stderr[traced.stderr.rindex("{"):].splitlines()[0])
        trace = single(suite, traced)
        everything = launched["alone"] + launched["beside"]
        sessions = said(traced, tool)
        found = trace.records("kernels")
        copies = launched["libcupti"]
        shut_out = len(copies) > 1 and all(session.startswith("refused: ") for session in sessions)
        missed = trace.report["completeness"]["unobserved_ns"] / 1e9
        if policy == "yield" and shut_out:
            yield expect(
                f"{name}.own_copy", found >= everything and missed == 0.0,
                f"refused with a CUPTI of its own ({copies}); {found} kernels of {everything}, {missed:.2f} s missing")
            yield expect(f"{name}.said", "copies of CUPTI" in traced.stderr, traced.stderr.strip()[-300:])
            return
        if policy == "exclusive":
            yield expect(f"{name}.trace", found >= everything, f"{found} kernels of {everything}; it: {said(traced, tool)}")
            return
        rows = trace.report.get("captures", [])
        found = sum(row["kernels"] for row in rows)
        stopped = "has left its own clock in CUPTI" in traced.stderr
        yield expect(
            f"{name}.trace", len(rows) == (1 if stopped else 3) and 0 < found <= everything,
            f"{len(rows)} captures with {found} kernels of {launched['alone']} launched while it was not there; clock left: {stopped}")
        yield expect(
            f"{name}.missed", MISSED_SECONDS <= missed <= traced.seconds,
            f"{missed:.2f} s of {traced.seconds:.2f} s are said to be missing")
        counts = [int(session.split()[0]) for session in sessions if session.split()[0].isdigit()]
        # JAX prints the amount that it wrote, a sixth of it if it was refused; the others print the number of kernels
        # they saw.
        written = sum(int(session.split()[0]) for session in said(bare, tool))
        least = written / 2 if tool == "jax" else SEEN * launched["beside"]
        yield expect(f"{name}.other", len(counts) == 2 and sum(counts) >= least, f"{sessions}, without gpuwhy {said(bare, tool)}")

    return Check(name, check, exclusive=False)


def around(tool: str, words: list[str]) -> Check:
    """A tool that starts the program. It may keep gpuwhy out, which is reported; the program's output and status do not
    change. ncu refuses to start any program while CUDA_INJECTION64_PATH is set, with its own message. nsys sets it
    again for the program, so that gpuwhy is only in nsys's own processes: they leave no trace, and `gpuwhy run` does
    not start it."""
    name = f"cupti_sharing.around.{tool}"

    def check(suite: Suite) -> Iterator[Result]:
        file = suite.nsys if tool == "nsys" else shutil.which(tool)
        if not file:
            yield skipped(name, f"{tool} is not on the PATH")
            return
        command = [file, *words, suite.microbench, "launch", "200", "--quiet-times"]
        alone = suite.run(f"{tool}-alone", command, Mode.BARE, suite.nsys_environment())
        if alone.code != 0:
            yield skipped(name, f"it fails without gpuwhy: {alone.ending()}: {(alone.stdout + alone.stderr).strip()[-200:]}")
            return
        traced = suite.run(f"{tool}-traced", command, Mode.VARIABLE, suite.nsys_environment())
        if "unset CUDA_INJECTION64_PATH" in traced.stdout + traced.stderr:
            yield expect(f"{name}.refused", traced.code != 0, "the tool asks for CUDA_INJECTION64_PATH to be unset")
            return
        yield expect(f"{name}.exit", traced.code == alone.code, f"alone {alone.ending()}, with gpuwhy {traced.ending()}")
        own = [line for line in alone.stdout.splitlines() if line.startswith("microbench")]
        yield expect(
            f"{name}.stdout", bool(own) and all(line in traced.stdout.splitlines() for line in own), f"the program's lines: {own}")
        held = "another profiler already holds CUPTI" in traced.stderr
        kernels = [Trace(suite, file).records("kernels") for file in traced.traces()]
        if tool == "nsys":
            yield expect(f"{name}.traces", not kernels, f"kernels in our traces: {kernels}")
            refused = suite.run(f"{tool}-run", command, Mode.COMMAND, suite.nsys_environment())
            yield expect(f"{name}.said", refused.code == 125 and "--force" in refused.stderr, refused.stderr.strip()[:200])
            return
        yield expect(
            f"{name}.said", held or any(kernels),
            f"{'it keeps gpuwhy out, which is said' if held else 'nothing is said'}; kernels in our traces: {kernels}")

    return Check(name, check, exclusive=False)


def no_kernels(suite: Suite) -> Iterator[Result]:
    """Only a context: the report states that there was no work, and does not invent a bottleneck."""
    command = [suite.microbench, "init", "--quiet-times"]
    bare = suite.bare("init", command)
    traced = suite.run("init-variable", command, Mode.VARIABLE)
    yield from compare("cupti_sharing.no_kernels", bare, traced, with_stderr=True)
    trace = single(suite, traced)
    yield expect(
        "cupti_sharing.no_kernels.bottleneck", trace.bottleneck in ("no_work", "cannot_tell") and trace.records("kernels") == 0,
        trace.bottleneck_line())


def no_cuda(suite: Suite) -> Iterator[Result]:
    """A program that never loads the driver: there is no output and no file."""
    command = [sys.executable, "-c", "print('no device used')"]
    bare = suite.bare("no-cuda", command)
    for mode in (Mode.VARIABLE, Mode.COMMAND):
        traced = suite.run(f"no-cuda-{mode.value}", command, mode)
        name = f"cupti_sharing.no_cuda.{mode.value}"
        yield from compare(name, bare, traced, with_stderr=mode is Mode.VARIABLE)
        yield expect(f"{name}.files", not traced.traces(), f"{len(traced.traces())} traces")


def unwritable(suite: Suite) -> Iterator[Result]:
    """The trace cannot be written: the program runs normally, and stderr names the path."""
    command = [suite.microbench, "launch", "10000", "--quiet-times"]
    bare = suite.bare("unwritable", command)
    place = "/proc/gpuwhy-cannot-be-here/trace.gpuwhy"
    traced = suite.run("unwritable-variable", command, Mode.VARIABLE, {"GPUWHY_OUTPUT": place})
    yield from compare("cupti_sharing.unwritable", bare, traced, with_stderr=False)
    yield expect("cupti_sharing.unwritable.said", place.rsplit("/", 1)[0] in traced.stderr, traced.stderr.strip()[:200])


def live_line(suite: Suite) -> Iterator[Result]:
    """The live bottleneck appears on stderr while the program runs, and never on stdout."""
    command = suite.python("train.py", "gpt", "--steps", "40", "--quiet-times")
    bare = suite.bare("live", command)
    traced = suite.run("live-variable", command, Mode.VARIABLE, {"GPUWHY_LIVE": "500ms"})
    yield from compare("cupti_sharing.live", bare, traced, with_stderr=False)
    lines = [line for line in traced.stderr.splitlines() if "gpuwhy" in line]
    yield expect("cupti_sharing.live.lines", len(lines) >= 3, f"{len(lines)} lines, the last: {lines[-1] if lines else 'none'}")


def checks() -> list[Check]:
    return [
        *(beside(tool, policy) for tool in TOOLS for policy in ("exclusive", "yield")),
        around("compute-sanitizer", []),
        around("ncu", ["--launch-count", "3", "--set", "none"]),
        around("nsys", ["profile", "-t", "cuda", "-s", "none", "--cpuctxsw=none", "-f", "true", "-o", "around"]),
        Check("cupti_sharing.no_kernels", no_kernels, exclusive=False),
        Check("cupti_sharing.no_cuda", no_cuda, exclusive=False),
        Check("cupti_sharing.unwritable", unwritable, exclusive=False),
        Check("cupti_sharing.live", live_line, exclusive=False),
    ]
