"""However a program ends, its trace can be read and lacks at most the last 0.3 s.

The program writes to a file how many kernels it had completed at which time, so that the missing part is known exactly.
A signal must also still kill: the library installs no handler that would keep the process alive or change its status.
"""

from __future__ import annotations

import pathlib
import signal
import time
from collections.abc import Iterator

from checks.transparency import compare
from harness import Check, Mode, Result, Suite, expect
from trace_report import Trace, single

# Maximum loss at an abrupt end, seconds: two flush periods of 100 ms, and the time to write.
LOSS_LIMIT = 0.3
# Work before the signal, seconds.
WORK = 2.0
# Kernels that the program launches in addition to those it counts: it fills one tensor. The current round is extra.
UNCOUNTED, ROUND = 10, 50
# The same under full load.
STORM_ROUND = 5_000

# Manner -> signal sent from outside, expected status, ends that the report may state.
MANNERS: dict[str, tuple[signal.Signals | None, int, str]] = {
    "sigkill": (signal.SIGKILL, -signal.SIGKILL, "abrupt"),
    "sigkill_under_load": (signal.SIGKILL, -signal.SIGKILL, "abrupt"),
    # Python ends an unhandled KeyboardInterrupt by sending itself the signal: no exit handler of C runs.
    "sigint": (signal.SIGINT, -signal.SIGINT, "clean"),
    "sigterm": (signal.SIGTERM, -signal.SIGTERM, "abrupt"),
    "_exit": (None, 4, "abrupt"),
    "segfault": (None, -signal.SIGSEGV, "abrupt"),
    "abort": (None, -signal.SIGABRT, "abrupt"),
    "exception": (None, 1, "clean"),
    "exit": (None, 0, "clean"),
}


def progress(file: pathlib.Path) -> list[tuple[int, int]]:
    """(unix nanoseconds, kernels completed) of each complete line."""
    text = file.read_text() if file.exists() else ""
    pairs = (line.split() for line in text[:text.rfind("\n") + 1].splitlines())
    return [(int(at), int(completed)) for at, completed in pairs]


def worked_for(lines: list[tuple[int, int]]) -> float:
    return (lines[-1][0] - lines[0][0]) / 1e9 if lines else 0.0


def one_manner(manner: str) -> Check:
    sent, status, end = MANNERS[manner]

    def check(suite: Suite) -> Iterator[Result]:
        prefix = f"endings.{manner}"
        file = suite.folder(f"progress-{manner}") / "progress"
        began = time.monotonic()
        under_load = manner.endswith("under_load")
        way = "storm" if under_load else "wait" if sent else manner
        command = suite.python("endings.py", way, "--progress", str(file), "--seconds", str(WORK))
        process, folder = suite.start(f"ending-{manner}", command, Mode.VARIABLE)
        ended_at = 0
        if sent:
            while worked_for(progress(file)) < WORK and process.poll() is None and time.monotonic() < began + 120:
                time.sleep(0.02)
            ended_at = time.time_ns()
            process.send_signal(sent)
        run = suite.finish(process, folder, began)
        lines = progress(file)
        yield expect(f"{prefix}.status", run.code == status, run.ending())
        if not lines:
            yield expect(f"{prefix}.trace", False, "the program wrote no progress")
            return
        ended_at = ended_at or lines[-1][0]

        trace = single(suite, run)
        kernels = trace.records("kernels")
        yield expect(f"{prefix}.stated_end", trace.end == end, f"report says {trace.end}, expected {end}")
        # The first time at which the trace no longer contains everything.
        missing_from = next((at for at, completed in lines if completed > kernels), ended_at)
        lost = max(0.0, (ended_at - missing_from) / 1e9)
        yield expect(
            f"{prefix}.lost", lost <= (LOSS_LIMIT if end == "abrupt" else 0.0),
            f"last {lost:.3f} s missing, {kernels} kernels of {lines[-1][1]} that were completed")
        yield expect(
            f"{prefix}.not_too_many", kernels <= lines[-1][1] + (STORM_ROUND if under_load else ROUND) + UNCOUNTED,
            f"{kernels} kernels, {lines[-1][1]} completed")

    return Check(f"endings.{manner}", check)


def one_context(manner: str) -> Check:
    """A context that is destroyed early takes no record with it: CUPTI returns complete records before."""

    def check(suite: Suite) -> Iterator[Result]:
        prefix = f"endings.context_{manner}"
        command = suite.python("contexts.py", manner)
        bare = suite.bare(f"context-{manner}", command)
        traced = suite.run(f"context-{manner}-variable", command, Mode.VARIABLE)
        yield from compare(prefix, bare, traced, with_stderr=True)
        trace = single(suite, traced)
        launched = int(bare.stdout.split()[-1])
        yield expect(
            f"{prefix}.kernels", trace.records("kernels") == launched and trace.end == "clean",
            f"{trace.records('kernels')} of {launched} kernels, end {trace.end}")

    return Check(f"endings.context_{manner}", check, exclusive=False)


def two_at_once(suite: Suite) -> Iterator[Result]:
    """Two processes on one device: each has its own file, complete, with its own kernels only."""
    began = time.monotonic()
    started = []
    for number in range(2):
        file = suite.folder(f"progress-{number}") / "progress"
        command = suite.python("endings.py", "exit", "--progress", str(file), "--seconds", str(WORK))
        started.append((file, *suite.start(f"two-{number}", command, Mode.VARIABLE)))
    for number, (file, process, folder) in enumerate(started):
        run = suite.finish(process, folder, began)
        files = run.traces()
        yield expect(f"endings.two_at_once.{number}.files", run.code == 0 and len(files) == 1, f"{run.ending()}, {len(files)} traces")
        if not files:
            continue
        trace = Trace(suite, files[0])
        completed = progress(file)[-1][1]
        yield expect(
            f"endings.two_at_once.{number}.kernels", completed <= trace.records("kernels") <= completed + UNCOUNTED,
            f"{trace.records('kernels')} kernels, {completed} completed, end {trace.end}")


def checks() -> list[Check]:
    contexts = [one_context(manner) for manner in ("destroy", "reset", "leave")]
    return [one_manner(manner) for manner in MANNERS] + contexts + [Check("endings.two_at_once", two_at_once)]
