"""Counts and times the steps of a Python program for `gpuwhy try`, and ends it when enough are measured.

A failure here does not affect the program. Appended to run/behind.py; gpuwhy appends loops.py, edits.py, the file with
the remedies, and the call of `main`.
"""

import _thread
import array
import ast
import atexit
import bisect
import contextlib
import ctypes
import dis
import functools
import json
import os
import signal
import statistics
import sys
import sysconfig
import threading
import time
import tokenize
import types
import weakref

# What PyTorch tells of steps, the most meaningful first. Passes of loops come behind the optimizer.
UNITS = ("optimizer", "module", "loader")
# Where Python's and installed packages' files are, and this one.
LIBRARIES = tuple({f"{path}/" for name, path in sysconfig.get_paths().items() if name.endswith("lib")}) + (
    os.path.dirname(os.path.abspath(__file__)) + "/",
)
# A step this many times as long as the median is a pause, such as that between two epochs.
PAUSE = 3.0
# Maximum number of time stamps to keep.
MOST = 200_000
# Shortest time between two waits for the GPU, seconds.
FIRST_WAIT = 2.0
# Numbers of steps that show whether step times still fall.
TREND = 10
# As many passes of a loop are enough if they take this many times the shortest time that is measured.
PASSES, LONG = 10, 5
# Steps get this many times the shortest time that is measured, even if the start-up has taken the share of the run.
LEAST = 2


def main(text):
    """Watches loops, waits for the program's import of torch, and applies the remedies of the JSON document `text`."""
    settings = json.loads(text)
    run = Run(settings, hide())
    if run.unit in (None, "loop") and hasattr(sys, "monitoring"):
        run.attempt("loop", run.watch_loops)

    apply(None, run)

    def imported(torch):
        run.mark("torch")
        apply(torch, run)
        run.attempt("steps", lambda: watch(torch, run))

    behind("torch", imported)
    run_next()


def complain(error):
    say("a remedy was not applied", error)


class Series:
    """Times at which steps ended, the number of the first one after the start-up, and waits for the GPU: the number of a
    step, and how long its end was waited for, in seconds."""

    def __init__(self):
        self.times, self.begin, self.waits, self.next_wait = array.array("d"), None, [], 0.0

    def wait(self, driver):
        """Makes the last step end when the GPU has done its work: the CPU may have launched it long before."""
        since = time.perf_counter()
        if len(self.times) >= MOST or not driver.wait():
            return
        now = time.perf_counter()
        self.waits.append((len(self.times) - 1, now - since))
        self.times[-1] = now
        # Each wait takes the lead that the CPU has, so they become rare.
        self.next_wait = now + max(FIRST_WAIT, now - self.times[self.waits[0][0]])


class Driver:
    """The CUDA driver of this process."""

    def __init__(self):
        # `has_waited`: whether a wait for the GPUs has been one; none says nothing without CUDA.
        self.calls, self.has_waited = None, False

    def library(self):
        """The driver's library, as the program loaded it. Calls by ctypes release Python's lock."""
        self.calls = self.calls or ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return self.calls

    def current(self):
        """The context of this thread."""
        context = ctypes.c_void_p()
        with contextlib.suppress(AttributeError, OSError):
            self.library().cuCtxGetCurrent(ctypes.byref(context))
        return context

    def wait(self, context=None):
        """Waits until the GPUs have done what was launched, with a context of another thread, too; false if that cannot
        be known."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        try:
            # The question would make a context where PyTorch has none yet.
            if hasattr(cuda, "is_initialized") and cuda.is_initialized() and cuda.is_current_stream_capturing():
                # Waiting would end the capture of a CUDA graph.
                return False
            if context:
                self.library().cuCtxSetCurrent(context)
            was_waited = self.wait_for_contexts(self.library())
            self.has_waited |= was_waited
            return was_waited
        except (AttributeError, OSError, RuntimeError):
            return False

    @staticmethod
    def wait_for_contexts(driver):
        count, was_waited = ctypes.c_int(), False
        driver.cuDeviceGetCount(ctypes.byref(count))
        for device in range(count.value):
            flags, active, context = ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
            # Asking for the context of a device that the program does not use would make it.
            if driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) or not active.value:
                continue
            if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
                continue
            if not driver.cuCtxPushCurrent_v2(context):
                was_waited |= not driver.cuCtxSynchronize()
                driver.cuCtxPopCurrent_v2(ctypes.byref(context))
            driver.cuDevicePrimaryCtxRelease_v2(device)
        context = ctypes.c_void_p()
        # The program may have made its context itself.
        if not was_waited and not driver.cuCtxGetCurrent(ctypes.byref(context)) and context.value:
            was_waited = not driver.cuCtxSynchronize()
        return was_waited


class Run:
    """Steps of this process and what the remedies found to change."""

    def __init__(self, settings, folder):
        self.settings, self.folder = settings, folder
        self.process, self.home = os.getpid(), os.path.realpath(os.getcwd())
        self.born = time.perf_counter()
        self.unit = settings["unit"]
        # Whether steps are counted here.
        self.is_counted = self.unit in (None, "loop", *UNITS)
        if self.unit == "loop" and settings.get("patched"):
            # Until the loop is found: the user's diff may have changed its header or moved it.
            self.unit = None
        self.series = {unit: Series() for unit in UNITS}
        self.loops, self.driver = None, Driver()
        self.applied, self.edits, self.errors = {}, {}, {}
        self.claimed = self.refused = self.ended = self.has_optimizer = self.is_forked = False
        # Time of the first step of any kind.
        self.since = None
        self.trains = None
        self.first = []
        self.undo = []
        self.opened = set()
        # When the program's own code had ended, and when the GPU had: false if it could not be waited for. How long that took.
        self.closed = self.finished = self.waited = None
        # Options of torch.compile, and the remedies that have them.
        self.compile, self.compilers = {}, []
        atexit.register(self.at_exit)
        self.watch_end()
        # Python before 3.7 has none.
        getattr(os, "register_at_fork", lambda **_: None)(after_in_child=self.forked)
        if settings.get("changed"):
            self.watch_files({os.path.basename(file) for file in settings["changed"]})

    def mark(self, name):
        with contextlib.suppress(OSError):
            open(os.path.join(self.folder, name), "a").close()

    def attempt(self, remedy, change):
        try:
            change()
        except Exception as error:
            self.errors[remedy] = f"{type(error).__name__}: {error}"
            complain(error)

    def applies(self, remedy, edit=None):
        """Notes that `remedy` found something to change, and the insertions that keep it in the program if all are known."""
        self.applied[remedy] = self.applied.get(remedy, 0) + 1
        kept = self.edits.setdefault(remedy, [])
        if edit is None or kept is None:
            self.edits[remedy] = None
        else:
            kept.extend(one for one in edit if one not in kept)

    def watch_end(self):
        """Notes the end of the program's own code, before what it registered for the exit."""
        shutdown = getattr(threading, "_shutdown", None)
        if shutdown is None:
            return

        # Python calls it behind the main module, to wait for the other threads.
        @functools.wraps(shutdown)
        def shut_down(*arguments, **named):
            try:
                return shutdown(*arguments, **named)
            finally:
                self.closed = time.perf_counter()
                with contextlib.suppress(Exception):
                    if os.getpid() == self.process and not (self.refused or self.ended) and self.has_waits():
                        self.finish()

        threading._shutdown = shut_down

    def finish(self):
        """Waits until the GPU has done everything, but no longer than a run may take: an exit handler may be what ends it."""
        since, done, context, waiting = time.perf_counter(), [], self.driver.current(), _thread.allocate_lock()

        def wait():
            try:
                if self.driver.wait(context):
                    done.append(time.perf_counter())
            finally:
                waiting.release()

        self.finished = False
        waiting.acquire()
        with contextlib.suppress(RuntimeError):
            _thread.start_new_thread(wait, ())
            waiting.acquire(timeout=max(FIRST_WAIT, self.settings["limit_s"] - (since - (self.since or since))))
        # Later ends of that thread do not count.
        for end in done[:1]:
            self.finished, self.waited = end, end - since

    def has_waits(self):
        """True if the GPU is waited for at the end; whole runs end as they do."""
        return self.is_counted and self.settings.get("waits") and uses_cuda()

    def watch_loops(self):
        self.loops = Loops(self)
        self.mark("loops")

    def watch_files(self, names):
        """Notes the files with these names that the program opens: it may execute them itself."""

        def happened(event, arguments):
            if event == "open" and isinstance(arguments[0], str) and arguments[0].rpartition("/")[2] in names:
                with contextlib.suppress(Exception):
                    self.opened.add(os.path.realpath(arguments[0]))

        # Python before 3.8 has none.
        getattr(sys, "addaudithook", lambda hook: None)(happened)

    def forked(self):
        """In a forked child: it is the one to measure if it makes steps and its parent has made none."""
        if self.loops is not None:
            self.loops.stop()
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            # Its children end without atexit, and forget what was registered before their start.
            util.register_after_fork(self, lambda run: util.Finalize(None, run.at_exit, exitpriority=0))
        # It cannot use CUDA if its parent does.
        if not (self.claimed or self.refused or self.ended or uses_cuda()):
            self.process, self.loops, self.since, self.is_forked = os.getpid(), None, None, True

    def at_exit(self):
        self.write()
        if self.settings.get("changed"):
            self.write_used()

    def step(self, unit):
        now = time.perf_counter()
        if self.is_forked and unit != "optimizer" and not self.claimed and not uses_cuda():
            # Such as a child that prepares data: transforms are modules too.
            self.refused = True
        if not self.counts():
            return
        self.series[unit].times.append(now)
        if unit == "optimizer" and self.unit is None:
            self.choose(unit, now)
        self.begin(now)
        # A batch is a step only where nothing else is.
        if unit == "loader" and self.unit is None and self.series["module"].times:
            return
        if self.unit in (None, unit):
            self.judge(unit, self.series[unit], now)

    def passed(self, loop, now):
        """A pass of the loop whose passes are the steps."""
        if self.counts():
            self.series["loop"] = loop
            self.begin(now)
            self.judge("loop", loop, now)

    def counts(self):
        """True if steps of this process count."""
        # A child of a process that is measured has a copy of this object.
        if self.ended or self.refused or os.getpid() != self.process:
            return False
        return self.claimed or self.claim()

    def begin(self, now):
        if self.since is None:
            self.since = now
        for call in self.first:
            call()
        self.first.clear()

    def judge(self, unit, series, now):
        """Ends the run if it has made enough steps."""
        # A recording would have the waits.
        if self.unit is not None and self.settings.get("waits") and self.is_to_wait(series, now):
            series.wait(self.driver)
            now = series.times[-1]
        if not self.is_due(series, now):
            return
        if self.unit is None and (self.awaits_optimizer(now) or self.awaits_outer(now) or not self.choose(unit, now)):
            return
        if self.is_due(self.series[self.unit], now):
            if self.settings.get("waits"):
                self.series[self.unit].wait(self.driver)
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
        return True

    def awaits_optimizer(self, now):
        """True while calls of modules or batches come before training, such as those that prepare its data."""
        if self.trains is None:
            self.trains = "torch" in sys.modules and trains(sys._getframe())
        times = max((series.times for series in self.series.values()), key=len)
        is_time_up = len(times) >= MOST or now - self.since > self.settings["limit_s"]
        return (self.has_optimizer or self.trains) and not is_time_up

    def awaits_outer(self, now):
        """True while the outermost loop has too few passes to be chosen, for a quarter of the time of a run."""
        if self.loops is None or self.settings["end"] == "limit" or 4 * (now - self.since) > self.settings["limit_s"]:
            return False
        outer = self.loops.best(now, self.series["module"].times, fewest=1)
        return outer is not None and len(outer.times) < FEWEST_PASSES

    def choose(self, unit, now):
        """Makes the outermost loop of steps the unit, else `unit`. False if that is a loop and none is of steps."""
        loops = self.loops
        if loops is not None and unit != "optimizer":
            loop = loops.best(now, self.series["module"].times)
            if loop is not None and self.counts():
                unit, self.series["loop"] = "loop", loop
                loops.choose(loop)
        if unit == "loop" and unit not in self.series:
            return False
        if loops is not None and unit != "loop":
            loops.stop()
        self.settle(unit)
        return True

    def settle(self, unit):
        """Makes `unit` that of the steps: nothing counts others any more."""
        self.unit = unit
        for undo in self.undo:
            undo()
        self.undo.clear()

    def is_to_wait(self, series, now):
        if series.begin is None and self.is_warm(series.times, len(series.times)):
            series.begin = len(series.times) - 1
        return series.begin is not None and now >= series.next_wait

    def is_due(self, series, now):
        end = self.settings["end"]
        if end == "measured":
            return self.is_measured(series)
        return end == "limit" and self.is_over(series.times, now)

    def is_over(self, times, now):
        """True if the run has taken its share of the time, with its start-up."""
        settings, took = self.settings, now - self.since
        least = settings["warm_s"] + LEAST * settings["seconds"]
        is_enough = len(times) > 3 and took > max(settings["limit_s"] - (self.since - self.born), least)
        return is_enough or took > settings["limit_s"]

    def is_measured(self, series):
        """True when the start-up is over and enough steps have come since."""
        settings, times = self.settings, series.times
        if len(times) >= MOST:
            return True
        if self.is_over(times, times[-1]) and len(times) > 3:
            return True
        if series.begin is None:
            if not self.is_warm(times, len(times)):
                return False
            series.begin = len(times) - 1
        steps, took = len(times) - 1 - series.begin, times[-1] - times[series.begin]
        if isinstance(series, Loop) and steps >= PASSES and took >= LONG * settings["seconds"]:
            return True
        if steps < settings["steps"] or took < settings["seconds"]:
            return False
        # Few pauses: a longer time shows whether they are regular. Looking costs time, so not after every step.
        if steps >= 4 * settings["steps"] or steps % settings["steps"]:
            return steps >= 4 * settings["steps"]
        return not few_pauses(times[series.begin :])

    def is_warm(self, times, count):
        """True if the start-up is over after this many steps."""
        warm = self.settings["warm_steps"]
        if count <= warm or times[count - 1] - times[0] < self.settings["warm_s"]:
            return False
        return count >= 10 * warm or not still_falls(times[max(0, count - 2 * TREND - 1) : count])

    def end(self):
        """Writes the result and ends the program as Ctrl-C would."""
        self.ended = True
        self.write(self.settings["end"])
        if threading.current_thread() is not threading.main_thread():
            _thread.interrupt_main()
            return
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            # A background job of a shell ignores Ctrl-C.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)

    def write(self, how="exit"):
        if os.getpid() != self.process or self.refused or (self.ended and how == "exit"):
            return
        if self.unit is None:
            self.choose(next((unit for unit in UNITS if len(self.series[unit].times) > 1), "loop"), self.closed or time.perf_counter())
        loops, unit = self.loops, self.unit or "optimizer"
        if loops is not None:
            loops.stop()
        # Without steps, it is the process with what was changed.
        if not self.claimed and (self.is_counted or not (self.applied and uses_cuda() and self.claim())):
            return
        has_waits = self.has_waits()
        if has_waits and how == "exit" and self.finished is None:
            self.finish()
        series = self.series.get(unit) or Series()
        if series.begin is None:
            made = range(len(series.times))
            series.begin = next((step for step in made if self.is_warm(series.times, step + 1)), None)
        document = {
            "process": self.process,
            "how": how,
            "unit": unit,
            "loop": loops.key(series) if isinstance(series, Loop) else None,
            "moved": self.settings["unit"] == "loop" and not (loops is not None and loops.is_found),
            "from": series.begin,
            "times": list(series.times),
            "waits": series.waits,
            # The GPU may work for long after the last step was launched.
            "ended": self.finished or None,
            "waited": self.waited,
            "synced": self.driver.has_waited if has_waits else None,
            "counts": {unit: getattr(series, "count", len(series.times)) for unit, series in self.series.items()},
            "applied": self.applied,
            "edits": {remedy: edits for remedy, edits in self.edits.items() if edits},
            "errors": self.errors,
        }
        if self.settings.get("changed"):
            document["used"] = self.used(self.settings["changed"])
        path = os.path.join(self.folder, "result.json")
        with contextlib.suppress(OSError):
            with open(path + ".part", "w") as file:
                json.dump(document, file)
            os.replace(path + ".part", path)

    def write_used(self):
        """For processes that are not measured: a child may be the one that loads a file."""
        with contextlib.suppress(OSError), open(os.path.join(self.folder, f"used.{os.getpid()}"), "w") as file:
            json.dump(self.used(self.settings["changed"]), file)

    def used(self, files):
        """Those of these files that this process has loaded."""
        # The script is no longer in its module at the end.
        loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        loaded += [*sys.argv[:1], *(self.loops.files if self.loops is not None else ())]
        real = {os.path.realpath(os.path.join(self.home, file)) for file in loaded if isinstance(file, str)} | self.opened
        return [file for file in files if os.path.realpath(file) in real]


def trains(frame, names=frozenset(["backward"]), everywhere=False):
    """True if code of the program that is running, or a function or method beside it, uses one of these names; with
    `everywhere`, code of all its modules, too. Libraries do not count: they have functions for everything."""
    beside_torch = os.path.dirname(os.path.dirname(sys.modules["torch"].__file__))

    def is_own(file):
        return isinstance(file, str) and own_code(file) and not os.path.abspath(file).startswith(beside_torch)

    found, spaces = [], {}
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            found.append(frame.f_code)
            spaces[id(frame.f_globals)] = frame.f_globals
        frame = frame.f_back
    for module in list(sys.modules.values()) if everywhere else ():
        space = getattr(module, "__dict__", {})
        if is_own(space.get("__file__")):
            spaces[id(space)] = space
    for space in spaces.values():
        if everywhere and not names.isdisjoint(space):
            return True
        for value in list(space.values()):
            inside = vars(value).values() if isinstance(value, type) and value.__module__ == space.get("__name__") else ()
            for one in (value, *inside):
                one = one.__func__ if isinstance(one, (staticmethod, classmethod)) else one
                one = one.fget if isinstance(one, property) else one
                while isinstance(one, types.FunctionType):
                    found.append(one.__code__)
                    one = vars(one).get("__wrapped__")
    # With the functions within them.
    for code in found:
        if not names.isdisjoint(code.co_names):
            return True
        found.extend(inner for inner in code.co_consts if isinstance(inner, types.CodeType))
    return False


def own_code(filename):
    """True if the file is the user's: not of Python, of an installed package, nor this one."""
    if filename.startswith("<"):
        return filename in ("<string>", "<stdin>")
    path = os.path.abspath(filename)
    return not path.startswith(LIBRARIES) and "/site-packages/" not in path and "/dist-packages/" not in path


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
    its arguments too, which may be changed in their list and dictionary. What it returns then is called after it."""
    compiling, depth = is_compiling(torch), threading.local()
    original = torch.nn.Module.__call__

    @functools.wraps(original)
    def call(self, *arguments, **named):
        if compiling() or getattr(depth, "inside", False):
            return original(self, *arguments, **named)
        depth.inside, after = True, None
        try:
            if before:
                arguments = list(arguments)
                after = then(self, arguments, named)
            answer = original(self, *arguments, **named)
        finally:
            depth.inside = False
            if after is not None:
                after()
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
