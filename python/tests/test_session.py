"""Sessions, ranges and steps."""

from __future__ import annotations

import json
import sys

import pytest
from gpuwhy import _native


def test_a_session_reports_what_the_device_did(program):
    done = program("""
        import gpuwhy
        with gpuwhy.profile("run.gpuwhy") as p:
            assert p.state is gpuwhy.State.COMPLETE
            assert str(p.trace) == "run.gpuwhy"
            play()
        assert violation() == "", violation()
        report = p.report
        assert report.bottleneck.cause == "launch"
        assert sum(report.devices[0].leaves.values()) == report.devices[0].window_ns
        assert sum(row["count"] for row in report.kernels) == report.completeness["records"]["kernels"] == 54081
        assert report.completeness["end"] == "clean"
        assert report.raw["schema_version"] == 2
        print("done")
        """)
    assert done.stdout == "done\n"
    assert "Bottleneck: kernel launches." in done.stderr


def test_import_does_nothing_and_loads_little(program):
    done = program("""
        before = set(sys.modules)
        import gpuwhy
        loaded = set(sys.modules) - before
        for name in ("torch", "numpy", "pandas", "IPython", "subprocess", "json", "gpuwhy._native", "pytest"):
            assert name not in loaded, name
        with gpuwhy.range("nothing measures"):
            gpuwhy.mark("nothing")
        assert list(gpuwhy.steps([1, 2])) == [1, 2]
        assert "libprof" not in open("/proc/self/maps").read()
        assert sorted(dir(gpuwhy)) == dir(gpuwhy)
        for name in gpuwhy.__all__:
            assert getattr(gpuwhy, name) is not None
        try:
            gpuwhy.no_such_name
        except AttributeError as error:
            print(error)
        """)
    assert "no_such_name" in done.stdout


def test_ranges_nest_by_thread_and_steps_are_found(program):
    program("""
        import asyncio, threading
        import gpuwhy

        @gpuwhy.range
        def whole(): return 1
        @gpuwhy.range("method", domain="library")
        def part(depth): return 0 if depth == 0 else 1 + part(depth - 1)
        @gpuwhy.range("coroutine")
        async def later():
            await asyncio.sleep(0)
            return 3
        async def both(): return await asyncio.gather(later(), later())

        with gpuwhy.profile(quiet=True) as p:
            with gpuwhy.range("outer"):
                for item in gpuwhy.steps(range(5)):
                    with gpuwhy.range("inner"):
                        gpuwhy.mark("here")
                assert whole() == 1 and part(2) == 2
                assert asyncio.run(both()) == [3, 3]
                thread = threading.Thread(target=whole)
                thread.start()
                thread.join()
            for _ in range(4):
                p.step()
            play()
        rows = {(row["domain"], row["message"]): row["host"]["count"] for row in p.report.ranges}
        print(rows)
        assert rows[("", "outer")] == 1 and rows[("", "inner")] == 5 and rows[("", "whole")] == 2
        assert rows[("library", "method")] == 3 and rows[("", "coroutine")] == 2
        # Of the loop: the last fetch, which finds its end, began a sixth. And four by hand.
        assert rows[("", "step")] == 6 + 4
        assert rows[("", "enumerate(DataLoader)#range_iterator.__next__")] == 6
        assert p.report.raw["ranges"]["open"] == 0 and p.report.raw["ranges"]["unmatched"] == 0
        assert p.trace is None
        """)


def test_an_exception_goes_on_and_leaves_a_trace(program):
    done = program("""
        import gpuwhy
        with gpuwhy.profile("run.gpuwhy"):
            play()
            raise KeyError("of the program")
        """, code=1)
    assert "KeyError: 'of the program'" in done.stderr and "Bottleneck" in done.stderr
    assert (program.folder / "run.gpuwhy").stat().st_size > 1000


def test_one_session_at_a_time_and_a_later_one_is_independent(program):
    program("""
        import gpuwhy
        with gpuwhy.profile(quiet=True) as first:
            try:
                gpuwhy.profile().start()
            except gpuwhy.NotMeasured as error:
                assert error.reason == "busy" and "stop it first" in str(error)
            else:
                raise AssertionError("two sessions")
            play(3250)
            early = first.snapshot()
            play(3300)
        with gpuwhy.profile("b.gpuwhy", quiet=True) as second:
            play()
        with gpuwhy.profile("b.gpuwhy", quiet=True) as third:
            pass
        counts = [report.completeness["records"]["kernels"] for report in (early, first.report, second.report, third.report)]
        assert 0 < counts[0] < counts[1] and counts[2] > 100 and counts[3] == 0, counts
        assert str(third.trace) == "b-1.gpuwhy", third.trace
        assert "Bottleneck" in first.report.text
        try:
            first.open()
        except LookupError as error:
            assert "no trace was kept" in str(error)
        """)


def test_a_schedule_measures_chosen_steps(program):
    program("""
        import gpuwhy
        schedule = gpuwhy.Schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
        phases = [schedule.phase(step) for step in range(11)]
        assert phases == ["none", "none", "warmup", "active", "last", "none", "warmup", "active", "last", "none", "none"], phases
        seen = []
        with gpuwhy.profile("cycle.gpuwhy", schedule=schedule, quiet=True, on_report=seen.append) as p:
            for step in gpuwhy.steps(range(12)):
                play(3200 + 60 * step)
        assert len(seen) == 2 and [str(path) for path in p.traces] == ["cycle.gpuwhy", "cycle-1.gpuwhy"], p.traces
        assert all(report.completeness["records"]["kernels"] > 0 for report in seen)
        for wrong in (dict(active=0), dict(wait=-1)):
            try:
                gpuwhy.Schedule(**wrong)
            except ValueError:
                pass
            else:
                raise AssertionError(wrong)
        """)
    assert len(list(program.folder.glob("*.gpuwhy"))) == 2


def test_a_prepared_process_may_use_cuda_before(program):
    program("""
        import gpuwhy
        assert gpuwhy.prepare() is gpuwhy.State.COMPLETE
        assert gpuwhy.prepare() is gpuwhy.State.COMPLETE
        play(3300)
        with gpuwhy.profile(quiet=True) as p:
            play()
        assert p.report.completeness["activities_without_launch"] == 0
        """)


def test_a_late_start_warns_and_strict_refuses(program):
    program("""
        import warnings
        import gpuwhy
        from gpuwhy import _native
        # The driver of this test is a recording, so CUDA is said to be used.
        _native.cuda_is_used = lambda: True
        try:
            gpuwhy.profile(strict=True).start()
        except gpuwhy.NotMeasured as error:
            assert "prepare" in str(error)
        else:
            raise AssertionError("strict must refuse")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with gpuwhy.profile(quiet=True) as p:
                play()
        assert [warning.category for warning in caught] == [gpuwhy.LateStart], caught
        assert caught[0].filename.endswith("program.py"), caught[0]
        assert p.state is gpuwhy.State.LATE
        """)


def test_cuda_is_used_once_it_has_a_context(monkeypatch):
    class Driver:
        def __init__(self, initialized=True, current=None, active=()):
            self.initialized, self.current, self.active = initialized, current, active

        def cuDeviceGetCount(self, count):
            count._obj.value = 2
            return 0 if self.initialized else 3

        def cuCtxGetCurrent(self, context):
            context._obj.value = self.current
            return 0

        def cuDevicePrimaryCtxGetState(self, device, flags, active):
            active._obj.value = int(device in self.active)
            return 0

    for driver, used in ((Driver(initialized=False, active=(0,)), False), (Driver(), False), (Driver(active=(1,)), True),
                         (Driver(current=0x1000), True), (object(), False)):
        monkeypatch.setattr(_native.ctypes, "CDLL", lambda *_, driver=driver, **__: driver)
        assert _native.cuda_is_used() is used, vars(driver) if isinstance(driver, Driver) else driver


def test_an_injected_library_is_joined(program):
    done = program.run([
        "gpuwhy", "run", "--output", "whole.gpuwhy", "--report", "off", "--", sys.executable, "-c", INJECTED])
    assert done.stdout == "joined\n", done
    whole, part = (json.loads(program.run(["gpuwhy", "report", "--json", name]).stdout)
                   for name in ("whole.gpuwhy", "part.gpuwhy"))
    kernels = [report["completeness"]["records"]["kernels"] for report in (part, whole)]
    assert 0 < kernels[0] < kernels[1]
    assert sorted(row["message"] for row in whole["ranges"]["rows"]) == ["before", "part"]


INJECTED = """
import ctypes, os, gpuwhy
with gpuwhy.range("before"):
    pass
# As the driver does it in cuInit.
ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
play = ctypes.CDLL(os.environ["GPUWHY_CUPTI_PATH"]).gpuwhy_replay_play
with gpuwhy.profile("part.gpuwhy", quiet=True) as p:
    assert p.state is gpuwhy.State.INJECTED
    with gpuwhy.range("part"):
        play(ctypes.c_uint64(3300000000))
play(ctypes.c_uint64(2**64 - 1))
print("joined")
"""


def test_without_a_library_the_error_says_what_to_do(program):
    program("""
        import gpuwhy
        try:
            gpuwhy.profile("none.gpuwhy", strict=True).start()
        except gpuwhy.NotMeasured as error:
            assert error.reason == "no_cupti" and "install" in str(error), error
        else:
            raise AssertionError("measured without CUPTI")
        """, GPUWHY_CUPTI_PATH="/nowhere/libcupti.so.13")
    assert not list(program.folder.glob("*.gpuwhy")), "no file is left"


@pytest.mark.parametrize("schedule", ["None", "gpuwhy.Schedule(wait=1, warmup=1, active=2)"])
def test_without_a_library_a_program_goes_on_with_an_empty_report(program, schedule):
    done = program(f"""
        import gpuwhy
        seen = []
        with gpuwhy.profile("empty.gpuwhy", html="page.html", schedule={schedule}, on_report=seen.append) as p:
            for step in gpuwhy.steps(range(5)):
                with gpuwhy.range("forward"):
                    if step == 3:
                        assert p.snapshot().bottleneck.cause == "cannot_tell"
        assert "install" in p.unmeasured and seen == [p.report]
        assert not list(p.report.kernels)
        assert p.report.metrics()["gpuwhy/lost_records"] == 0
        assert p.open().report.bottleneck.cause == "cannot_tell"
        """, GPUWHY_CUPTI_PATH="/nowhere/libcupti.so.13")
    assert "NothingMeasured: nothing is measured: no usable libcupti" in done.stderr, done
    assert done.stderr.count("NothingMeasured") == 1 and "Nothing was measured: no usable libcupti" in done.stderr, done
    assert "program.py" in done.stderr.split("NothingMeasured")[0], "the warning names the line of the program"
    assert (program.folder / "page.html").stat().st_size > 1000
    history = program.folder / ".local" / "state" / "gpuwhy" / "history.jsonl"
    assert not history.exists()


def test_the_child_of_a_fork_is_not_measured_and_not_harmed(program):
    program("""
        import gpuwhy
        with gpuwhy.profile("run.gpuwhy", quiet=True) as p:
            child = os.fork()
            if child == 0:
                with gpuwhy.range("of the child"):
                    pass
                try:
                    gpuwhy.profile().start()
                except gpuwhy.NotMeasured as error:
                    assert "fork" in str(error)
                assert p.stop() is None
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            play()
        assert p.report.completeness["records"]["kernels"] == 54081
        assert not p.report.ranges
        """)


def test_an_interrupt_ends_the_session_and_goes_on(program):
    done = program("""
        import signal
        import gpuwhy
        # The background jobs of a script ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with gpuwhy.profile("run.gpuwhy"):
            play()
            signal.raise_signal(signal.SIGINT)
        """, code=-2)
    assert "KeyboardInterrupt" in done.stderr and "Bottleneck" in done.stderr


def test_an_open_session_leaves_nothing_at_exit(program):
    temporary = program.folder / "tmp"
    temporary.mkdir()
    for end, code in (("raise SystemExit(3)", 3), ("raise ValueError", 1), ("pass", 0)):
        program(f"""
            import glob, os
            import gpuwhy
            gpuwhy.profile(quiet=True).start()
            play()
            if os.fork() == 0:
                raise SystemExit
            os.wait()
            assert len(glob.glob(os.environ["TMPDIR"] + "/gpuwhy-*/session.gpuwhy")) == 1, "the child left it"
            {end}
            """, code=code, TMPDIR=str(temporary))
        assert list(temporary.iterdir()) == [], end


def test_a_decorated_function_is_measured_each_time(program):
    program("""
        import gpuwhy
        seen = []
        @gpuwhy.profile(quiet=True, on_report=seen.append)
        def measured(until):
            play(until)
            return until
        assert measured(3250) == 3250 and measured(3300) == 3300
        assert len(seen) == 2 and seen[0] is not seen[1]
        """)


def test_hostile_names_are_kept_apart_from_the_program(program):
    program("""
        import gpuwhy
        with gpuwhy.profile(quiet=True) as p:
            for name in ("", "a\\0b", "x" * 100000, "\\ud800", "umlaut \\u00fc", "<script>"):
                with gpuwhy.range(name):
                    gpuwhy.mark(name)
        messages = [row["message"] for row in p.report.ranges]
        assert "a" in messages and "umlaut \\u00fc" in messages and "<script>" in messages, messages
        assert max(map(len, messages)) <= 4096
        """)


def test_a_session_adds_a_line_to_the_history_unless_it_is_off(program):
    text = """
        import gpuwhy
        for wanted in (True, False):
            with gpuwhy.profile(quiet=True, history=wanted):
                play()
    """
    file = program.folder / ".local" / "state" / "gpuwhy" / "history.jsonl"
    program(text, GPUWHY_HISTORY="off")
    assert not file.exists()
    program(text, "--lr", "3e-4")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["command"][-2:] for line in lines] == [["--lr", "3e-4"]]
    assert lines[0]["bottleneck"] == "launch" and lines[0]["devices"][0]["step_ns"] > 0
    # For a program that runs under gpuwhy, the history has the run but not its sessions.
    program.run([sys.executable, "-m", "gpuwhy", "program.py"])
    assert len(file.read_text().splitlines()) == 2
    shown = program.run([sys.executable, "-m", "gpuwhy", "check", "--history", "--any-arguments"]).stdout
    assert "python program.py on " in shown and "(2 runs)" in shown
    # The file is not writable: the program is not affected.
    file.unlink()
    file.mkdir()
    program(text)


def test_a_wrong_name_fails_alike_in_a_session_and_outside(program):
    program("""
        import gpuwhy
        def wrong():
            for call in [lambda: gpuwhy.range(3), lambda: gpuwhy.range(b"x"), lambda: gpuwhy.mark(3), lambda: next(gpuwhy.steps([1], name=3))]:
                try:
                    call()
                except TypeError as error:
                    assert "must be str, not" in str(error), error
                else:
                    raise AssertionError("accepted")
        wrong()
        with gpuwhy.profile("wrong.gpuwhy", quiet=True):
            play()
            wrong()
        """)
