"""Counts and times the steps of a PyTorch program for `gpuwhy try`, and ends it when enough are measured.

A failure here does not affect the program. Appended to run/behind.py; gpuwhy appends the file with the remedies and the
call of `main`.
"""

import _thread
import atexit
import contextlib
import functools
import json
import os
import signal
import statistics
import sys
import sysconfig
import threading
import time
import types
import weakref

# What a step is, the most meaningful first.
UNITS = ("optimizer", "module", "loader")
# A step this many times as long as the median is a pause, such as that between two epochs.
PAUSE = 3.0
# Maximum number of time stamps to keep.
MOST = 200_000
# Numbers of steps that show whether step times still fall.
TREND = 10


def main(text):
    """Waits for the program's import of torch, then applies the remedies of the JSON document `text`."""
    settings = json.loads(text)
    run = Run(settings, hide())

    def imported(torch):
        run.mark("torch")
        for remedy in settings["remedies"]:
            run.attempt(remedy, lambda remedy=remedy: apply(remedy, torch, run))
        finish_remedies(torch, run)
        run.attempt("steps", lambda: watch(torch, run))

    behind("torch", imported)
    run_next()


def complain(error):
    print(f"gpuwhy: a remedy was not applied: {type(error).__name__}: {error}", file=sys.stderr)


class Run:
    """Steps of this process and what the remedies found to change."""

    def __init__(self, settings, folder):
        self.settings, self.folder = settings, folder
        self.process = os.getpid()
        self.unit = settings["unit"]
        self.times = {unit: [] for unit in UNITS}
        self.applied, self.errors = {}, {}
        self.claimed = self.refused = self.ended = self.has_optimizer = False
        self.from_step = dict.fromkeys(UNITS)
        self.trains = None
        self.first = []
        self.undo = []

    def mark(self, name):
        with contextlib.suppress(OSError):
            open(os.path.join(self.folder, name), "a").close()

    def attempt(self, remedy, change):
        try:
            change()
        except Exception as error:
            self.errors[remedy] = f"{type(error).__name__}: {error}"
            complain(error)

    def applies(self, remedy):
        """Notes that `remedy` found something to change."""
        self.applied[remedy] = self.applied.get(remedy, 0) + 1

    def step(self, unit):
        now = time.perf_counter()
        # A forked child goes on with a copy of this object.
        if self.ended or self.refused or os.getpid() != self.process:
            return
        if not self.claimed and not self.claim():
            return
        times = self.times[unit]
        times.append(now)
        if len(times) == 1:
            if unit == "optimizer" and self.unit is None:
                self.choose(unit)
            for call in self.first:
                call()
            self.first.clear()
        # A batch is a step only where nothing else is.
        if unit == "loader" and self.unit is None and self.times["module"]:
            return
        if self.unit in (None, unit) and self.is_measured(unit):
            if self.unit is None and self.awaits_optimizer(times):
                return
            if self.unit is None:
                self.unit = unit
            self.end()

    def claim(self):
        """Makes this process the one that is measured: the first that makes a step."""
        data = sys.modules.get("torch.utils.data")
        if data is not None and getattr(data, "get_worker_info", lambda: None)() is not None:
            # A data loader's process: transforms are modules too.
            return False
        try:
            os.close(os.open(os.path.join(self.folder, "claim"), os.O_CREAT | os.O_EXCL, 0o600))
        except OSError:
            self.refused = True
            return False
        self.claimed = True
        atexit.register(self.write)
        return True

    def awaits_optimizer(self, times):
        """True while calls of modules or batches come before training, such as those that prepare its data."""
        if self.trains is None:
            self.trains = trains(sys._getframe())
        is_time_up = len(times) >= MOST or times[-1] - times[0] > self.settings["limit_s"]
        return (self.has_optimizer or self.trains) and not is_time_up

    def choose(self, unit):
        self.unit = unit
        for undo in self.undo:
            undo()
        self.undo.clear()

    def is_measured(self, unit):
        """True when the start-up is over and enough steps have come since."""
        settings, times = self.settings, self.times[unit]
        if len(times) >= MOST:
            return True
        if times[-1] - times[0] > settings["limit_s"] and len(times) > 3:
            return True
        if self.from_step[unit] is None:
            if len(times) <= settings["warm_steps"] or times[-1] - times[0] < settings["warm_s"]:
                return False
            if len(times) < 10 * settings["warm_steps"] and still_falls(times):
                return False
            self.from_step[unit] = len(times) - 1
        begin = self.from_step[unit]
        steps = len(times) - 1 - begin
        if steps < settings["steps"] or times[-1] - times[begin] < settings["seconds"]:
            return False
        # Few pauses: a longer time shows whether they are regular. Looking costs time, so not after every step.
        if steps >= 4 * settings["steps"] or steps % settings["steps"]:
            return steps >= 4 * settings["steps"]
        return not few_pauses(times[begin:])

    def end(self):
        """Writes the result and ends the program as Ctrl-C would."""
        self.ended = True
        self.write("measured")
        if not self.settings["end"]:
            return
        if threading.current_thread() is not threading.main_thread():
            _thread.interrupt_main()
            return
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            # A background job of a shell ignores Ctrl-C.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)

    def write(self, how="exit"):
        if os.getpid() != self.process or (self.ended and how == "exit"):
            return
        unit = self.unit or next((unit for unit in UNITS if len(self.times[unit]) > 1), "optimizer")
        document = {
            "process": self.process,
            "how": how,
            "unit": unit,
            "from": self.from_step[unit],
            "times": self.times[unit],
            "counts": {unit: len(times) for unit, times in self.times.items()},
            "applied": self.applied,
            "errors": self.errors,
        }
        path = os.path.join(self.folder, "result.json")
        with contextlib.suppress(OSError):
            with open(path + ".part", "w") as file:
                json.dump(document, file)
            os.replace(path + ".part", path)


def trains(frame):
    """True if code of the program that is running, or a function beside it, computes gradients. Libraries do not count:
    they have functions for everything."""
    paths = sysconfig.get_paths()
    beside_torch = os.path.dirname(os.path.dirname(sys.modules["torch"].__file__))
    libraries = (paths["stdlib"], paths["purelib"], beside_torch, os.path.dirname(os.path.abspath(__file__)))
    while frame is not None:
        if not os.path.abspath(frame.f_code.co_filename).startswith(libraries):
            named = list(frame.f_globals.values())
            beside = (value.__code__ for value in named if isinstance(value, types.FunctionType))
            if any("backward" in code.co_names for code in (frame.f_code, *beside)):
                return True
        frame = frame.f_back
    return False


def durations(times):
    return [end - start for start, end in zip(times, times[1:])]


def still_falls(times):
    """True if the last steps are a tenth shorter than those before."""
    last = durations(times[-2 * TREND - 1 :])
    if len(last) < 2 * TREND:
        return True
    return statistics.median(last[TREND:]) < 0.9 * statistics.median(last[:TREND])


def few_pauses(times):
    """True if one or two pauses take at least a twentieth of the time."""
    each = durations(times)
    limit = PAUSE * statistics.median(each)
    pauses = [time for time in each if time > limit]
    return 0 < len(pauses) < 3 and sum(pauses) > 0.05 * sum(each)


def is_compiling(torch):
    """A function that Dynamo evaluates to True, so that compiled programs contain nothing of this file."""
    for owner in (getattr(torch, "compiler", None), getattr(torch, "_dynamo", None)):
        if hasattr(owner, "is_compiling"):
            return owner.is_compiling
    return lambda: False


def watch(torch, run):
    """Counts steps: calls of an optimizer, outermost calls of modules, and batches of a loader."""
    wanted = UNITS if run.unit is None else (run.unit,)
    if "optimizer" in wanted:
        _watch_optimizer(torch, run)
    if "module" in wanted:
        # Every call of every module passes here, so it ends as soon as the unit is another.
        on_outermost_call(torch, run, lambda module: run.step("module"))
    if "loader" in wanted:
        _watch_loader(torch, run)


def _watch_optimizer(torch, run):
    from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

    make = Optimizer.__init__

    @functools.wraps(make)
    def init(self, *arguments, **named):
        run.has_optimizer = True
        make(self, *arguments, **named)

    Optimizer.__init__ = init
    compiling, chosen = is_compiling(torch), []

    def stepped(optimizer, *_):
        if compiling():
            return
        # Programs with several optimizers: one of them is the step.
        if not chosen or chosen[0]() is None:
            chosen[:] = [weakref.ref(optimizer)]
        if chosen[0]() is optimizer:
            run.step("optimizer")

    register_optimizer_step_post_hook(stepped)


def on_outermost_call(torch, run, then, before=False):
    """Calls `then` with the module after each call of a module that is not within another call; `before`: before it, with
    its arguments too, which may be changed in their list and dictionary."""
    compiling, depth = is_compiling(torch), threading.local()
    original = torch.nn.Module.__call__

    @functools.wraps(original)
    def call(self, *arguments, **named):
        if compiling() or getattr(depth, "inside", False):
            return original(self, *arguments, **named)
        depth.inside = True
        try:
            if before:
                arguments = list(arguments)
                then(self, arguments, named)
            answer = original(self, *arguments, **named)
        finally:
            depth.inside = False
        if not before:
            then(self)
        return answer

    torch.nn.Module.__call__ = call

    def undo():
        if torch.nn.Module.__call__ is call:
            torch.nn.Module.__call__ = original

    if not before:
        run.undo.append(undo)


def _watch_loader(torch, run):
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    original = _BaseDataLoaderIter.__next__

    @functools.wraps(original)
    def following(self):
        batch = original(self)
        run.step("loader")
        return batch

    _BaseDataLoaderIter.__next__ = following

    def undo():
        if _BaseDataLoaderIter.__next__ is following:
            _BaseDataLoaderIter.__next__ = original

    run.undo.append(undo)
