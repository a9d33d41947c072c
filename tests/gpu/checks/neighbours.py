"""Company and odd places: another profiler in the process, no kernels, no CUDA at all, nowhere to write."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from checks.transparency import compare
from harness import Check, Mode, Result, Suite, expect
from trace_report import single


def torch_profiler(suite: Suite) -> Iterator[Result]:
    """CUPTI has one subscriber a process: torch.profiler may see nothing, but nobody crashes and our trace is whole."""
    command = suite.python("profiled_by_torch.py")
    bare = suite.bare("torch-profiler", command)
    traced = suite.run("torch-profiler-variable", command, Mode.VARIABLE)
    yield from compare("neighbours.torch_profiler", bare, traced, with_stderr=False)
    trace = single(suite, traced)
    # Two profiles of 8 rounds of 50 kernels.
    yield expect("neighbours.torch_profiler.trace", trace.records("kernels") >= 800, f"{trace.records('kernels')} kernels")


def no_kernels(suite: Suite) -> Iterator[Result]:
    """A context and nothing else: the report says that there was no work, and does not invent a bottleneck."""
    command = [suite.microbench, "init", "--quiet-times"]
    bare = suite.bare("init", command)
    traced = suite.run("init-variable", command, Mode.VARIABLE)
    yield from compare("neighbours.no_kernels", bare, traced, with_stderr=True)
    trace = single(suite, traced)
    yield expect(
        "neighbours.no_kernels.verdict", trace.verdict in ("no_work", "cannot_tell") and trace.records("kernels") == 0,
        trace.verdict_line())


def no_cuda(suite: Suite) -> Iterator[Result]:
    """A program that never loads the driver: nothing is printed and no file appears."""
    command = [sys.executable, "-c", "print('no device used')"]
    bare = suite.bare("no-cuda", command)
    for mode in (Mode.VARIABLE, Mode.COMMAND):
        traced = suite.run(f"no-cuda-{mode.value}", command, mode)
        name = f"neighbours.no_cuda.{mode.value}"
        yield from compare(name, bare, traced, with_stderr=mode is Mode.VARIABLE)
        yield expect(f"{name}.files", not traced.traces(), f"{len(traced.traces())} traces")


def unwritable(suite: Suite) -> Iterator[Result]:
    """The trace cannot be written: the program runs as ever, and stderr names the place."""
    command = [suite.microbench, "launch", "10000", "--quiet-times"]
    bare = suite.bare("unwritable", command)
    place = "/proc/gpuprof-cannot-be-here/trace.gpuprof"
    traced = suite.run("unwritable-variable", command, Mode.VARIABLE, {"GPUPROF_OUTPUT": place})
    yield from compare("neighbours.unwritable", bare, traced, with_stderr=False)
    yield expect("neighbours.unwritable.said", place.rsplit("/", 1)[0] in traced.stderr, traced.stderr.strip()[:200])


def live_line(suite: Suite) -> Iterator[Result]:
    """The live verdict appears on stderr while the program runs, and never on stdout."""
    command = suite.python("train.py", "gpt", "--steps", "40", "--quiet-times")
    bare = suite.bare("live", command)
    traced = suite.run("live-variable", command, Mode.VARIABLE, {"GPUPROF_LIVE": "500ms"})
    yield from compare("neighbours.live", bare, traced, with_stderr=False)
    lines = [line for line in traced.stderr.splitlines() if "gpuprof" in line]
    yield expect("neighbours.live.lines", len(lines) >= 3, f"{len(lines)} lines, the last: {lines[-1] if lines else 'none'}")


def checks() -> list[Check]:
    return [
        Check("neighbours.torch_profiler", torch_profiler, exclusive=False),
        Check("neighbours.no_kernels", no_kernels, exclusive=False),
        Check("neighbours.no_cuda", no_cuda, exclusive=False),
        Check("neighbours.unwritable", unwritable, exclusive=False),
        Check("neighbours.live", live_line, exclusive=False),
    ]
