"""Programs that have loaded their libraries and wait for their run (workloads/on_command.py).

Loading PyTorch and creating a context takes several seconds, a measurement one. So the programs of several checks are
started at the same time, and each then runs while all others wait.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from harness import Check, Mode, Result, Run, Suite, TimeUp, expect, skipped

# Time for all programs of a group to load their libraries, seconds. Some compile their kernels meanwhile.
READY_LIMIT = 240.0
# Maximum length of a run, seconds.
TURN_LIMIT = 90.0
# Time for a program to exit after its last run, seconds: it writes the rest of its trace.
END_LIMIT = 60.0


class Missing(Exception):
    """A library that the program needs is not installed."""


class Failed(Exception):
    """The program ended, or did not reply in time."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """A program to start. `rehearse`: arguments of a run before its first measured run; without them there is none."""

    script: pathlib.Path
    arguments: Sequence[str]
    libraries: str
    mode: Mode = Mode.BARE
    variables: dict[str, str] = dataclasses.field(default_factory=dict)
    rehearse: str | None = None


class Prepared:
    """A started program."""

    def __init__(self, suite: Suite, name: str, plan: Plan) -> None:
        self.suite, self.name = suite, name
        self._answers, writing = os.pipe()
        command = [
            sys.executable, str(suite.workloads / "on_command.py"), "--answer", str(writing), "--libraries", plan.libraries,
            *([f"--rehearse={plan.rehearse}"] if plan.rehearse is not None else []), str(plan.script), *plan.arguments]
        try:
            self.process, self.folder = suite.start(
                name, command, plan.mode, plan.variables, stdin=subprocess.PIPE, pass_fds=[writing])
        finally:
            os.close(writing)
        self._received = b""
        self._printed = 0
        self._run: Run | None = None
        suite.at_end.append(self.finish)

    def wait_ready(self, until: float) -> None:
        """Waits until the libraries are loaded.

        Raises Missing and Failed.
        """
        answer = self._answer(until)
        if answer.startswith("missing "):
            raise Missing(answer)
        self._printed_since()  # a rehearsal's output does not belong to the first run

    def turn(self, limit: float = TURN_LIMIT) -> str:
        """Runs the program once and returns what it printed.

        Raises Failed.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"go\n")
            self.process.stdin.flush()
        except OSError as error:
            raise self._failure() from error
        self._answer(time.monotonic() + limit)
        return self._printed_since()

    def release(self) -> None:
        """Notifies the program that no further run follows, and does not wait for its end."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except OSError:
            pass  # it has ended

    def finish(self) -> Run:
        """Lets the program exit, and returns its outcome."""
        if self._run is None:
            self.release()
            try:
                self._run = self.suite.finish(self.process, self.folder, time.monotonic(), END_LIMIT)
            finally:
                if self._answers >= 0:
                    os.close(self._answers)
                    self._answers = -1
        return self._run

    def _printed_since(self) -> str:
        text = (self.folder / "stdout").read_text(errors="replace")
        printed, self._printed = text[self._printed:], len(text)
        return printed

    def _answer(self, until: float) -> str:
        while b"\n" not in self._received:
            left = until - time.monotonic()
            ready, _, _ = select.select([self._answers], [], [], max(0.0, min(left, 0.2)))
            received = os.read(self._answers, 4096) if ready else b""
            self._received += received
            # Children of the program may keep the pipe open after its end.
            if not received and (ready or self.process.poll() is not None):
                raise self._failure()
            if not received and time.monotonic() >= self.suite.deadline:
                self.finish()  # raises that the time is up, or returns how the program ended meanwhile
                raise TimeUp
            if not received and left <= 0:
                self.process.kill()
                raise self._failure("it did not answer in time")
        line, _, self._received = self._received.partition(b"\n")
        return line.decode()

    def _failure(self, why: str = "") -> Failed:
        run = self.finish()
        said = run.stderr.strip().splitlines()
        return Failed(f"{self.name}: {why or run.ending()}: {said[-1][:300] if said else ''}")


def finish_all(programs: Iterable[Prepared]) -> list[Run]:
    """Lets the programs end at the same time."""
    programs = list(programs)
    for program in programs:
        program.release()
    return [program.finish() for program in programs]


@dataclasses.dataclass
class Group:
    """The programs of several checks, by check and by role. They are started a few checks at a time, when the first of
    them is requested."""

    prefix: str
    plans: Callable[[Suite, str], dict[str, Plan]]
    names: Sequence[str]
    size: int
    _started: dict[str, dict[str, Prepared] | Exception] = dataclasses.field(default_factory=dict)

    def check(self, name: str, judge: Callable[[Suite, str, dict[str, Prepared]], Iterator[Result]], credit: float) -> Check:
        """The check of one program, judged by `judge`; see `Check` for `credit`. A missing library skips it."""
        title = f"{self.prefix}.{name}"

        def check(suite: Suite) -> Iterator[Result]:
            try:
                yield from judge(suite, name, self.take(suite, name))
            except Missing as error:
                yield skipped(title, str(error))
            except Failed as error:
                yield expect(title, False, str(error))

        return Check(title, check, credit=credit)

    def take(self, suite: Suite, name: str) -> dict[str, Prepared]:
        """The programs of one check, ready.

        Raises Missing and Failed.
        """
        if name not in self._started:
            self._start(suite, name)
        found = self._started[name]
        if isinstance(found, Exception):
            raise found
        return found

    def _start(self, suite: Suite, first: str) -> None:
        rest = self.names[self.names.index(first):]
        chosen = [name for name in rest if name == first or f"{self.prefix}.{name}" in suite.selected]
        chosen = chosen[:suite.together or self.size]
        began = time.monotonic()
        started = {
            name: {role: Prepared(suite, f"{name}-{role}", plan) for role, plan in self.plans(suite, name).items()}
            for name in chosen}
        for name, programs in started.items():
            self._started[name] = programs
            try:
                for program in programs.values():
                    program.wait_ready(began + READY_LIMIT)
            except (Missing, Failed) as error:
                self._started[name] = error
                finish_all(programs.values())
        suite.log(f"# {', '.join(chosen)}: ready after {time.monotonic() - began:.1f} s")
