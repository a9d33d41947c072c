"""Sessions: a program measures a part of itself.

A session is a trace from its start to its end. Its report is that of `gpuwhy report` for that trace.
"""

from __future__ import annotations

import atexit
import enum
import functools
import os
import sys
import tempfile
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from . import _native
from ._errors import LateStart, NothingMeasured, NotMeasured
from ._ranges import Steps

if TYPE_CHECKING:
    from ._report import Report
    from ._trace import Trace

F = TypeVar("F", bound=Callable[..., Any])

_MODES = ("light", "full")
_SHARING = ("exclusive", "yield")
# Reasons that hold for the whole process.
_NEVER = ("no_cupti", "other_profiler")

_open_profile: Profile | None = None
_prepared: State | None = None
_lock = threading.RLock()


def _forked() -> None:
    """Another thread of the parent may have held the lock, which will never be released in the child."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)


class State(enum.Enum):
    """How complete the sessions of this process are."""

    INJECTED = "injected"
    """The process runs under gpuwhy; a session is one trace more."""
    COMPLETE = "complete"
    """Measuring began before CUDA had a context."""
    LATE = "late"
    """Measuring began when CUDA had a context: calls of the host may be missing."""


@dataclass(frozen=True)
class Schedule:
    """The steps to measure, in the terms of `torch.profiler.schedule`: after `skip_first` steps, cycles of `wait`
    steps that are not measured, `warmup` steps that are measured and discarded, and `active` steps that count.
    `repeat` cycles; 0 repeats to the end. Each cycle has a separate trace and report."""

    wait: int = 0
    warmup: int = 0
    active: int = 1
    repeat: int = 0
    skip_first: int = 0

    def __post_init__(self) -> None:
        for name in ("wait", "warmup", "active", "repeat", "skip_first"):
            if getattr(self, name) < 0:
                raise ValueError(f"Schedule: {name} is {getattr(self, name)}, and must not be negative")
        if self.active == 0:
            raise ValueError("Schedule: active is 0, so no step would be measured")

    def phase(self, step: int) -> str:
        """Phase of the step with this number, counted from 0: `none`, `warmup`, `active`, or `last`, the last
        active one of a cycle."""
        at = step - self.skip_first
        length = self.wait + self.warmup + self.active
        if at < 0 or (self.repeat and at >= self.repeat * length):
            return "none"
        at %= length
        if at < self.wait:
            return "none"
        if at < self.wait + self.warmup:
            return "warmup"
        return "last" if at == length - 1 else "active"


def prepare(*, mode: str | None = None, cupti_sharing: str | None = None) -> State:
    """Starts the collector without measuring, so that CUDA may be used before the first session. Call it before the first
    CUDA call, such as at the top of a script or notebook. Further calls have no effect.

    `mode` is `light` or `full` (GPUWHY_MODE). The collector holds CUPTI, which serves one tool in a process: a later
    torch.profiler is refused, unless `cupti_sharing` is `yield` (GPUWHY_CUPTI_SHARING).

    Raises NotMeasured when there is no driver or no CUPTI, or when another profiler holds it.
    """
    global _prepared
    for name, value, choices in (("mode", mode, _MODES), ("cupti_sharing", cupti_sharing, _SHARING)):
        if value is not None and value not in choices:
            raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")
    with _lock:
        if _prepared is not None and not _native.is_fork():
            if mode is not None or cupti_sharing is not None:
                warnings.warn("gpuwhy was prepared before; mode and cupti_sharing stay as they were", stacklevel=2)
            return _prepared
        functions = _native.loaded()
        if functions.injected:
            _prepared = State.INJECTED
            return _prepared
        late = _native.cuda_is_used()
        # The library reads them when it starts, as for a program that is measured completely.
        wished = {"GPUWHY_MODE": mode, "GPUWHY_CUPTI_SHARING": cupti_sharing}
        before = {name: os.environ.get(name) for name in wished}
        try:
            for name, value in wished.items():
                if value is not None:
                    os.environ[name] = value
            # An empty session starts the collector, which then keeps running.
            folder = tempfile.mkdtemp(prefix="gpuwhy-")
            path = os.path.join(folder, "empty.gpuwhy")
            try:
                functions.begin(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                functions.end()
            finally:
                _remove(path, folder)
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
        _prepared = State.LATE if late else State.COMPLETE
        return _prepared


def _outside() -> int:
    """Number of frames between the caller and the program: warnings name its line, not one of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) == os.path.dirname(__file__):
        level, frame = level + 1, frame.f_back
    return level


def _remove(path: str, folder: str) -> None:
    for remove, what in ((os.unlink, path), (os.rmdir, folder)):
        try:
            remove(what)
        except OSError:
            pass


def _create_new(path: Path) -> tuple[int, Path]:
    """Creates a new file. An existing one is not overwritten: the new one gets a number, as with the command."""
    path.parent.mkdir(parents=True, exist_ok=True)
    candidate, number = path, 1
    while True:
        try:
            return os.open(candidate, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), candidate
        except FileExistsError:
            if number >= 1000:
                raise
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1


class Profile:
    """A session, or several with a schedule. A context manager and a decorator; `profile()` creates it."""

    def __init__(
            self, trace: str | os.PathLike[str] | None, *, quiet: bool, html: str | os.PathLike[str] | None,
            on_report: Callable[[Report], object] | None, schedule: Schedule | None, strict: bool,
            history: bool) -> None:
        self._wanted = None if trace is None else Path(trace)
        self._quiet = quiet
        self._html = html
        self._on_report = on_report
        self._schedule = schedule
        self._strict = strict
        self._history = history
        self._functions: _native.Functions | None = None
        self._folder: str | None = None
        self._path: Path | None = None
        self._measuring = False
        self._keep = True
        self._steps = Steps()
        self._step = 0
        # True if step() has started a step.
        self._stepped = False
        self._entered = False
        self._report: Report | None = None
        self.owner = os.getpid()
        """The process that made or started this."""
        self.state: State | None = None
        """How complete the session is; None before it began, and if nothing can be measured."""
        self.unmeasured: str | None = None
        """Why nothing was measured; None if measuring was possible."""
        self.traces: list[Path] = []
        """The traces of the cycles that are over."""

    @property
    def trace(self) -> Path | None:
        """Path of the trace that is being written, or of the last cycle; None if no trace was named."""
        return self._path if self._wanted is not None else None

    @property
    def is_open(self) -> bool:
        """True if it was started in this process and not stopped."""
        return self._entered and self.owner == os.getpid()

    @property
    def report(self) -> Report:
        """The report of the last session that ended.

        Raises LookupError before that.
        """
        if self._report is None:
            raise LookupError("the report is there when measuring has ended; snapshot() gives one before")
        return self._report

    def start(self) -> Profile:
        """Starts measuring or, with a schedule, counting steps. Where nothing can be measured, warns with NothingMeasured;
        the report is then empty.

        Raises NotMeasured if a session is open, another tool has CUPTI, or `strict`; FileNotFoundError or another OSError when the trace cannot be written.
        """
        global _open_profile
        with _lock:
            if _open_profile is not None and _open_profile.owner == os.getpid():
                raise NotMeasured("busy", "a session is open in this process already; stop it first: records do not say "
                                  "which part of a program wanted them")
            _open_profile = self
            self.owner = os.getpid()
            self._entered = True
        self._stepped = False
        try:
            if self._schedule is None:
                self._begin()
            else:
                # Activity before the first active step is then complete too.
                self._prepare()
                self._step = 0
                self._enter_phase()
        except BaseException:
            self._forget()
            raise
        return self

    def stop(self) -> Report | None:
        """Ends measuring and returns the report; None if a schedule has measured no step. Waits at most 2 s for device work
        that is still running.

        Raises NotMeasured.
        """
        if not self._entered:
            raise NotMeasured("not_open", "this profile is not open; start it first")
        if self.owner != os.getpid():
            # The child of a fork has the object of its parent, but no collector.
            return None
        self._forget()
        if self._measuring:
            self._end()
        return self._report

    def step(self) -> None:
        """Ends the previous step of the program and starts the next, for loops that `steps()` cannot wrap. Call it at the
        start of each iteration; the first call starts the first step."""
        if self.owner != os.getpid():
            return
        if self._stepped:
            self._steps.end()
            self.advance()
        self._stepped = True
        self._steps.next()

    def advance(self) -> None:
        """Advances the schedule after a step."""
        if self._schedule is None or not self._entered:
            return
        if self._schedule.phase(self._step) == "last" and self._measuring:
            self._end()
        self._step += 1
        self._enter_phase()

    def _enter_phase(self) -> None:
        assert self._schedule is not None
        phase = self._schedule.phase(self._step)
        before = self._schedule.phase(self._step - 1) if self._step else "none"
        if phase == "warmup" and not self._measuring:
            self._begin(keep=False)
        elif phase in ("active", "last"):
            if self._measuring and before == "warmup":
                self._end()
            if not self._measuring:
                self._begin()

    def snapshot(self) -> Report:
        """The report up to now. Measuring continues.

        Raises NotMeasured when no session is open.
        """
        from ._trace import Trace

        if not self._measuring or self._functions is None or self._path is None:
            raise NotMeasured("not_open", "no session is open; start one")
        if self.unmeasured is None:
            self._functions.flush()
        return Trace(self._path).report

    def open(self) -> Trace:
        """The trace of the last session, with its tables.

        Raises LookupError when none was kept.
        """
        from ._trace import Trace

        if not self.traces:
            raise LookupError("no trace was kept: name one, as in profile('run.gpuwhy'), and end the session")
        return Trace(self.traces[-1])

    def view(self) -> None:
        """Opens the page of the trace in a browser.

        Raises LookupError when no trace was kept.
        """
        self.open().view()

    def __enter__(self) -> Profile:
        return self.start()

    def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.stop()
            return
        # The error of the program propagates, even if ending the session fails.
        try:
            self.stop()
        except Exception as own:
            print(f"gpuwhy: {own}", file=sys.stderr)

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            with self:
                return function(*arguments, **named)

        result: Any = wrapper
        return result  # type: ignore[no-any-return]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from .jupyter import bundle

        return bundle(self)

    def _forget(self) -> None:
        global _open_profile
        with _lock:
            if _open_profile is self:
                _open_profile = None
            self._entered = False

    def _warn_if_late(self) -> None:
        if self.state is not State.LATE:
            return
        text = ("CUDA was used before measuring began: calls that launch device work may be missing, and recording costs "
                "more. Call gpuwhy.prepare() before the first CUDA call (%load_ext gpuwhy in the first cell of a notebook), or use "
                "`python -m gpuwhy`")
        if self._strict:
            raise NotMeasured("refused", text)
        warnings.warn(text, LateStart, stacklevel=_outside())

    def _prepare(self) -> None:
        try:
            self.state = prepare()
        except NotMeasured as error:
            if self._strict:
                raise
            self.unmeasured = str(error)
        self._warn_if_late()

    def _begin(self, keep: bool = True) -> None:
        functions = _native.loaded()
        if self.state is None and self.unmeasured is None:
            self._prepare()
        if self._wanted is not None and keep:
            file, path = _create_new(self._wanted)
        else:
            self._folder = tempfile.mkdtemp(prefix="gpuwhy-")
            file, path = _create_new(Path(self._folder) / "session.gpuwhy")
        try:
            functions.begin(file)
        except BaseException as error:
            # The library has closed the descriptor, and written a trace without records if it cannot start.
            never = isinstance(error, NotMeasured) and (self.unmeasured is not None or error.reason in _NEVER)
            if self._strict or not never:
                _remove(str(path), self._folder or os.devnull)
                raise
            self.unmeasured = str(error)
            warnings.warn(f"nothing is measured: {error}", NothingMeasured, stacklevel=_outside())
        self._functions, self._path, self._keep, self._measuring = functions, path, keep, True
        if self._folder is not None:
            atexit.register(self._discard)

    def _discard(self) -> None:
        """Removes the trace without a name. Also at the exit of a program that has not ended the session."""
        atexit.unregister(self._discard)
        # A fork's child has the folder of its parent.
        if self._folder is not None and self.owner == os.getpid():
            _remove(str(self._path), self._folder)
        self._folder = None

    def _end(self) -> None:
        from ._trace import Trace

        functions, path = self._functions, self._path
        assert functions is not None and path is not None
        self._measuring = False
        self._steps.end()
        try:
            if self.unmeasured is None:
                functions.end()
            if not self._keep:
                return
            # For a program that runs under gpuwhy, the history has the complete run instead.
            kept = self._history and self.state is not State.INJECTED and self.unmeasured is None
            trace = Trace.of_session(path) if kept else Trace(path)
            report = trace.report
            if self._folder is not None:
                # Its trace is about to be deleted.
                report.text
            self._report = report
            if self._html is not None:
                trace.html(self._html, force=True)
            if self._wanted is not None:
                self.traces.append(path)
            if not self._quiet:
                print(report.text, end="", file=sys.stderr)
            if self._on_report is not None:
                self._on_report(report)
        finally:
            self._discard()


def profile(
        trace: str | os.PathLike[str] | None = None, *, quiet: bool = False, html: str | os.PathLike[str] | None = None,
        on_report: Callable[[Report], object] | None = None, schedule: Schedule | None = None,
        strict: bool = False, history: bool = True) -> Profile:
    """Measures the launches of this process on its devices, from the start of a `with` block (or `start()`) to its end.

    `trace` keeps the trace in a file; an existing one is not overwritten, the new one gets a number. The report is printed
    to stderr at the end unless `quiet`, written as a page to `html`, and passed to `on_report`. `schedule` measures chosen
    steps. If CUDA was used before, the session is incomplete and warns with LateStart; where nothing can be measured, such as
    without a GPU, the report is empty and the warning is NothingMeasured. `strict` raises NotMeasured instead of both. The
    session adds a line to the history of `gpuwhy check --history`, unless GPUWHY_HISTORY or `history` is off.
    """
    return Profile(trace, quiet=quiet, html=html, on_report=on_report, schedule=schedule, strict=strict,
                   history=history)


def step_of_open_profile() -> None:
    """Advances the schedule of the open profile after a step of `steps()`."""
    current = _open_profile
    if current is not None and current.owner == os.getpid():
        current.advance()


def current() -> Profile | None:
    """The profile that is open in this process."""
    return _open_profile if _open_profile is not None and _open_profile.owner == os.getpid() else None
