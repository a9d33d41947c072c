"""The pytest plugin, the notebook magic, and the callbacks of training frameworks with stand-ins for these."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from conftest import INSTALLED

# Tests of a user, with a recording as the GPU.
JUDGED = '''
import ctypes, os
import gpuwhy
import pytest

def play(millis=None):
    until = 2**64 - 1 if millis is None else millis * 1000000
    ctypes.CDLL(os.environ["GPUWHY_CUPTI_PATH"]).gpuwhy_replay_play(ctypes.c_uint64(until))

@pytest.mark.gpu_expect(kernels_at_most=100000)
def test_right(gpu_profile):
    with gpu_profile:
        play(3300)
    assert gpu_profile.report.bottleneck.cause

@pytest.mark.gpu_expect(launches_at_most=2, kernels_at_most=7)
def test_wrong(gpu_profile):
    with gpu_profile:
        play()

@pytest.mark.gpu_expect(no_sync=True)
def test_empty(gpu_profile):
    pass

@pytest.mark.gpu_expect(no_such_limit=1)
def test_misspelled(gpu_profile):
    pass

def test_not_asked():
    assert "libprof" not in sys_modules()

def sys_modules():
    import sys
    return list(sys.modules)

def test_its_own_error_is_shown(gpu_profile):
    with gpu_profile:
        raise KeyError("of the test")
'''
PLUGIN = [] if INSTALLED else ["-p", "gpuwhy.pytest_plugin"]


def run_tests(program, *options, code=1, **more):
    (program.folder / "test_user.py").write_text(JUDGED)
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", program.folder, *PLUGIN, *options, "test_user.py"]
    return program.run(line, code=code, **more).stdout


def test_the_pytest_plugin_judges_and_shows_what_was_seen(program):
    said = run_tests(program, "--gpuwhy-dir", "traces")
    assert "launching calls, at most 2 expected" in said and "kernels, at most 7 expected" in said
    assert "bottleneck: " in said and "has measured nothing" in said
    assert "there is no limit 'no_such_limit'" in said
    assert "KeyError: 'of the test'" in said
    # A test without a measurement has already passed when the fixture detects that.
    assert "2 failed, 3 passed, 2 errors" in said, said
    assert "test_user.py::test_right: traces/" in said
    assert len(list((program.folder / "traces").glob("*.gpuwhy"))) == 3


def test_without_a_gpu_tests_are_skipped_or_fail_on_request(program):
    nothing = {"GPUWHY_CUPTI_PATH": "/nowhere/libcupti.so"}
    said = run_tests(program, "-k", "test_right or test_wrong", code=0, **nothing)
    assert "2 skipped" in said
    said = run_tests(program, "-k", "test_right or test_wrong", "--gpuwhy-required", code=1, **nothing)
    assert "2 failed" in said and "nothing can be measured" in said


def test_baselines_are_renewed_on_request(program):
    (program.folder / "test_user.py").write_text('''
import ctypes, os, pytest
@pytest.mark.gpu_expect(step_within=1.05, baseline="perf.json", case="mlp")
def test_step(gpu_profile):
    with gpu_profile:
        ctypes.CDLL(os.environ["GPUWHY_CUPTI_PATH"]).gpuwhy_replay_play(ctypes.c_uint64(2**64 - 1))
''')
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", program.folder, *PLUGIN, "test_user.py"]
    assert "nothing about" in program.run(line, code=1).stdout
    program.run([*line, "--gpuwhy-bless"])
    assert json.loads((program.folder / "perf.json").read_text())["kernels"][0]["case"] == "mlp"
    program.run(line)


def test_measuring_begins_before_the_first_test_if_one_asks(program):
    (program.folder / "test_user.py").write_text('''
import gpuwhy._native, pytest
used = False
gpuwhy._native.cuda_is_used = lambda: used

def test_that_uses_cuda():
    global used
    used = True

@pytest.mark.filterwarnings("error")
def test_that_measures(gpu_profile):
    with gpu_profile:
        pass
''')
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", program.folder, *PLUGIN, "test_user.py"]
    assert "2 passed" in program.run(line).stdout
    # No test uses the fixtures, so no library is loaded.
    (program.folder / "conftest.py").write_text('''
def pytest_unconfigure():
    import gpuwhy._native
    assert gpuwhy._native.found is None
''')
    program.run([*line, "-k", "test_that_uses_cuda"])
    program.run([*line, "--collect-only"])


def test_a_benchmark_has_the_times_of_its_calls(program):
    def row(kind, name, start, duration, thread, correlation):
        return {"ph": "X", "cat": kind, "name": name, "ts": start, "dur": duration, "pid": 0 if kind == "kernel" else 100,
                "tid": thread, "args": {"correlation": correlation, "device": 0, "context": 1, "stream": 7}}

    rows = []
    for number in range(3):
        start = 1000 + 100 * number
        rows += [row("user_annotation", f"ProfilerStep#{number}", start, 50, 100, 0),
                 row("cuda_runtime", "cudaLaunchKernel", start + 5, 5, 100, 10 + number),
                 row("kernel", "work", start + 20, 20 + number, 7, 10 + number)]
    (program.folder / "trace.json").write_text(json.dumps({"traceEvents": rows, "displayTimeUnit": "ms", "deviceProperties": []}))
    program('''
        import gpuwhy, gpuwhy.pytest_plugin, pytest
        from gpuwhy.pytest_plugin import _bench_result
        # Of a recording, the ranges are on a thread of their own; of PyTorch's traces only steps are taken.
        gpuwhy.pytest_plugin._CALL = "ProfilerStep#*"
        report = gpuwhy.open("trace.json").report
        found = _bench_result(report, 3)
        assert (found.calls, found.median_us, found.min_us, found.max_us) == (3, 21, 20, 22), found
        with pytest.raises(pytest.fail.Exception, match="of 4 calls only 3"):
            _bench_result(report, 4)
        ''')


NOTEBOOK = '''
import json, nbclient, nbformat
cells = [
    "%load_ext gpuwhy",
    PLAY_TEXT,
    "%%gpuwhy --height 300\\nplay(3300)\\n6 * 7",
    "import gpuwhy\\nwith gpuwhy.profile('kept.gpuwhy', quiet=True) as p:\\n    play()\\np.report",
    "%%gpuwhy --no-timeline --trace mine.gpuwhy\\n1 / 0",
    "%%gpuwhy --no-such-option\\n1",
    "print('goes on')",
]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
nbclient.NotebookClient(notebook, timeout=300, allow_errors=True).execute()
print(json.dumps([cell.outputs for cell in notebook.cells]))
'''


@pytest.mark.skipif(importlib.util.find_spec("nbclient") is None or importlib.util.find_spec("ipykernel") is None,
                    reason="nbclient and ipykernel are not installed")
def test_a_notebook_shows_the_answer_and_the_page(program):
    from conftest import PLAY

    outputs = json.loads(program(f"PLAY_TEXT = {PLAY!r}\n" + NOTEBOOK).stdout.splitlines()[-1])
    said = json.dumps(outputs[0])
    assert not outputs[0], said
    magic = {output["output_type"]: output for output in outputs[2]}
    assert magic["execute_result"]["data"]["text/plain"] == "42"
    shown = magic["display_data"]["data"]
    assert shown["text/plain"].startswith("gpuwhy: process")
    static, frame = shown["text/html"].split("<iframe", 1)
    assert "<script" not in static and "GPU 0 NVIDIA H200" in static and "<table>" in static
    assert 'sandbox="allow-scripts"' in frame and "height:300px" in frame and "&lt;!doctype html" in frame.lower()
    assert "<!doctype" not in frame.lower()
    report = outputs[3][-1]["data"]
    assert "<iframe" not in report["text/html"] and "launch" in report["text/html"]
    errors = [output["ename"] for output in outputs[4] if output["output_type"] == "error"]
    assert errors == ["ZeroDivisionError"] and (program.folder / "mine.gpuwhy").exists()
    assert "no-such-option" in json.dumps(outputs[5])
    assert outputs[6][0]["text"] == "goes on\n"


# Stand-ins: the parts of the libraries that the callbacks need, and a loop that calls them as the libraries do.
STANDINS = '''
import types
import gpuwhy

lightning = types.ModuleType("lightning.pytorch")
class Callback: pass
class Profiler:
    def __init__(self, dirpath=None, filename=None): pass
lightning.Callback, lightning.profilers = Callback, types.SimpleNamespace(Profiler=Profiler)
sys.modules["lightning.pytorch"] = lightning
transformers = types.ModuleType("transformers")
transformers.TrainerCallback = type("TrainerCallback", (), {})
sys.modules["transformers"] = transformers

class Logger:
    def __init__(self): self.seen = {}
    def log_metrics(self, metrics, step): self.seen.update(metrics)

def fit(callback, logger, batches=6):
    trainer = types.SimpleNamespace(logger=logger, global_step=batches)
    callback.on_train_start(trainer, None)
    for batch in range(batches):
        callback.on_train_batch_start(trainer, None, None, batch)
        play(3200 + 40 * batch)
        if batch == 3:
            callback.on_validation_start(trainer, None)
            callback.on_validation_end(trainer, None)
    callback.on_train_end(trainer, None)

def train(callback, batches=6):
    callback.on_train_begin(None, None, None)
    for batch in range(batches):
        callback.on_step_begin(None, None, None)
        callback.on_substep_end(None, None, None)
        play(3200 + 40 * batch)
    callback.on_evaluate(None, None, None)
    callback.on_save(None, None, None)
    callback.on_train_end(None, None, None)
'''


def test_callbacks_measure_a_training(program):
    program(STANDINS + '''
import gpuwhy.lightning, gpuwhy.transformers
logger = Logger()
callback = gpuwhy.lightning.Callback("lightning.gpuwhy", quiet=True)
fit(callback, logger)
rows = {row["message"]: row["host"]["count"] for row in callback.report.ranges}
assert rows["step"] == 6 and rows["validation"] == 1, rows
assert logger.seen["gpuwhy/kernels"] > 100, logger.seen

profiler = gpuwhy.lightning.Profiler()
second = gpuwhy.transformers.Callback("trainer.gpuwhy", quiet=True)
profiler.start("run_training_batch"); profiler.start("optimizer_step"); profiler.stop("optimizer_step"); profiler.stop("run_training_batch")
profiler.stop("never started")
train(second)
rows = {row["message"]: row["host"]["count"] for row in second.report.ranges}
assert rows["step"] == 6, rows
''')
    assert sorted(path.name for path in program.folder.glob("*.gpuwhy")) == ["lightning.gpuwhy", "trainer.gpuwhy"]


def test_callbacks_never_raise_into_a_training(program):
    done = program(STANDINS + '''
import gpuwhy.lightning, gpuwhy.transformers
for make in (lambda: gpuwhy.lightning.Callback("/proc/nowhere/x.gpuwhy"), lambda: gpuwhy.transformers.Callback("/proc/nowhere/x.gpuwhy")):
    callback = make()
    (fit(callback, Logger()) if hasattr(callback, "on_train_start") else train(callback))
    assert callback.report is None
print("trained")
''')
    assert done.stdout == "trained\n"
    assert done.stderr.count("measuring has ended, and training goes on") == 2
    done = program(STANDINS + '''
import gpuwhy.lightning
play = lambda millis: None
callback = gpuwhy.lightning.Callback("x.gpuwhy")
fit(callback, None)
callback.on_exception(None, None, KeyError())
print("trained")
''', GPUWHY_CUPTI_PATH="/nowhere/libcupti.so")
    assert done.stdout == "trained\n" and done.stderr.count("gpuwhy:") == 1


def test_ranks_write_files_of_their_own(program):
    program(STANDINS + '''
import gpuwhy.lightning
fit(gpuwhy.lightning.Callback("x.gpuwhy"), None)
''', RANK="3", WORLD_SIZE="8")
    assert [path.name for path in program.folder.glob("*.gpuwhy")] == ["x-rank3.gpuwhy"]
