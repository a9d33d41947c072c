"""Shared code of the callbacks for training frameworks: a profile that never raises into the training.

An error ends measuring and is printed once on stderr; training continues.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from ._ranges import Steps
from ._session import Profile, Schedule, prepare, profile

if TYPE_CHECKING:
    from ._report import Report


def rank_of_process() -> int:
    """Rank from the variables of torchrun, Open MPI, PMI and Slurm; 0 if there is none."""
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return 0


def size_of_job() -> int:
    """Number of ranks, from the same sources as `rank_of_process`."""
    for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return 1


class Guarded:
    """Profile of a training run."""

    def __init__(
            self, trace: str | os.PathLike[str] | None, schedule: Schedule | None, quiet: bool | None,
            on_report: Callable[[Report], object] | None) -> None:
        self._trace = trace
        self._schedule = schedule
        self._quiet = quiet
        self._on_report = on_report
        self._profile: Profile | None = None
        self._series = Steps()
        self._failed = False
        # As early as possible: the framework is about to use CUDA.
        self._try(prepare)

    @property
    def report(self) -> Report | None:
        """The last report; None before the first."""
        try:
            return None if self._profile is None else self._profile.report
        except LookupError:
            return None

    def _try(self, work: Callable[[], object]) -> None:
        if self._failed:
            return
        try:
            work()
        except Exception as error:
            self._failed = True
            print(f"gpuwhy: measuring has ended, and training goes on: {error}", file=sys.stderr)

    def start(self) -> None:
        """Called when training starts."""
        self._try(self._start)

    def _start(self) -> None:
        rank = rank_of_process()
        trace = self._trace
        if trace is not None and size_of_job() > 1:
            path = Path(trace)
            trace = path.with_name(f"{path.stem}-rank{rank}{path.suffix}")
        quiet = rank != 0 if self._quiet is None else self._quiet
        self._profile = profile(trace, quiet=quiet, schedule=self._schedule, on_report=self._on_report)
        self._profile.start()

    def step(self) -> None:
        """Called when a step starts."""
        if self._profile is not None:
            self._try(self._profile.step)

    def begin_other(self, name: str) -> None:
        """Called when an activity other than a step starts, such as validation."""
        self._series.end()
        self._series = Steps(name)
        self._try(self._series.next)

    def end_other(self) -> None:
        """Called when that activity ends."""
        self._try(self._series.end)

    def stop(self) -> None:
        """Called when training ends."""
        current = self._profile
        if current is not None and current.is_open:
            self._try(current.stop)
