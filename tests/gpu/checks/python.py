"""The wheel on a GPU: installed without a network into an environment that sees this Python's packages, then the
command, the module, sessions in every order with torch and CUDA, callbacks, the pytest plugin and a notebook.

It takes the newest wheel of `dist/` (`python3 python/wheel.py` builds it), or GPUWHY_WHEEL; otherwise it makes a wheel
of the command and library under test. Wheels of pytest, IPython, ipykernel and nbclient in `dist/more/` are installed
too.
"""

from __future__ import annotations

import concurrent.futures
import functools
import json
import os
import pathlib
import site
import sys
from collections.abc import Iterator

from harness import REPOSITORY, Check, Mode, Result, Run, Suite, expect, skipped

LIMIT = 180.0
LAUNCHES = 200
BATCHES = 64
# First action of a program, and the frameworks that have a callback, by the module.
ORDERS = ("import_torch", "available", "prepared", "late", "torch_profiler")
FRAMEWORKS = {"lightning": "lightning", "trainer": "transformers"}
# Number of programs that run at once.
TOGETHER = 4
# Maximum overhead of a range, microseconds; the figures are printed.
RANGE_US = 5.0


def find_wheel() -> pathlib.Path | None:
    named = os.environ.get("GPUWHY_WHEEL")
    if named:
        return pathlib.Path(named).resolve()
    found = sorted((REPOSITORY / "dist").glob("gpuwhy-*.whl"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def make_wheel(suite: Suite) -> Run:
    """A wheel of the files under test, in `scratch`."""
    call = "import sys, gpuwhy_build; gpuwhy_build.build_wheel(sys.argv[1])"
    variables = {"PYTHONPATH": str(REPOSITORY / "python" / "build_backend"), "GPUWHY_WHEEL_BINARIES": str(suite.gpuwhy.parent.resolve())}
    return suite.run("python-wheel", [sys.executable, "-c", call, suite.scratch], Mode.BARE, variables, LIMIT)


def replayed() -> dict[str, str]:
    """In a rehearsal, the variables that replace the GPU by a recording; its folder is that of the build outputs."""
    folder = os.environ.get("GPU_SUITE_REPLAY")
    if not folder:
        return {}
    recording = REPOSITORY / "testing" / "fixtures" / "mlp.cupti.zst"
    return {"GPUWHY_CUPTI_PATH": f"{folder}/libcupti_replay.so", "GPUWHY_REPLAY": str(recording), "GPUWHY_EXIT_TIMEOUT": "60s",
            "GPU_SUITE_REPLAY_HOST": f"{folder}/gpuwhy-replay-host"}


def environment(suite: Suite) -> pathlib.Path:
    return suite.scratch / "python-environment"


def install(suite: Suite) -> Iterator[Result]:
    """A fresh environment that finds torch where this Python does."""
    wheel = find_wheel()
    if wheel is None:
        made = make_wheel(suite)
        wheel = next(suite.scratch.glob("gpuwhy-*.whl"), None)
        if made.code != 0 or wheel is None:
            yield expect("python.wheel", False, why(made))
            return
    folder = environment(suite)
    made = suite.run("python-venv", [sys.executable, "-m", "venv", "--without-pip", folder], limit=LIMIT)
    packages = next(iter((folder / "lib").glob("python3*/site-packages")), None)
    if made.code != 0 or packages is None:
        yield expect("python.environment", False, made.stderr.strip()[-300:])
        return
    places = [path for path in [*site.getsitepackages(), *sys.path] if path.endswith(("site-packages", "dist-packages"))]
    (packages / "outer.pth").write_text("".join(f"{path}\n" for path in dict.fromkeys(places)))
    # Packages of the outer environment, without its gpuwhy.
    more = sorted((REPOSITORY / "dist" / "more").glob("*.whl"))
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-index", "--no-deps",
           "--disable-pip-version-check", "--ignore-installed", wheel, *more]
    run = suite.run("python-install", pip, limit=LIMIT)
    yield expect("python.install", run.code == 0, f"{wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB; {run.stderr.strip()[-300:]}")


def call(suite: Suite, name: str, *words: str | os.PathLike[str], limit: float = LIMIT) -> Run:
    """Runs a program with the environment."""
    python = environment(suite) / "bin"
    path = f"{python}:{os.environ['PATH']}"
    # Traces and the library's own messages stay in the folder of the run.
    return suite.run(f"python-{name}", [python / "python", *words], Mode.BARE, {"PATH": path, **replayed()}, limit)


def last(run: Run) -> dict:
    """The JSON in the last line of a program's output; empty if there is none."""
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def why(run: Run) -> str:
    return f"{run.ending()}: {run.stdout.strip()[-200:]} {run.stderr.strip()[-300:]}"


def command(suite: Suite) -> Iterator[Result]:
    """`python -m gpuwhy`, and the command of the wheel with the library of the wheel."""
    script = suite.workloads / "train.py"
    run = call(suite, "command", "-m", "gpuwhy", "--output", "run.gpuwhy", "--report", "off", script, "mlp", "--quiet-times")
    trace = run.folder / "run.gpuwhy"
    yield expect("python.command.run", run.code == 0 and trace.exists(), why(run))
    if not trace.exists():
        return
    report = call(suite, "report", "-c", "import sys, json, gpuwhy; r = gpuwhy.open(sys.argv[1]).report; print(json.dumps("
                  "{'kernels': len(r.kernels), 'frame': list(r.kernels.to_pandas().shape), 'bottleneck': r.bottleneck.cause, "
                  "'step': r.devices[0].step_ns}))", trace)
    found = last(report)
    yield expect("python.command.report", report.code == 0 and found.get("kernels", 0) > 0, why(report))
    doctor = suite.run("python-doctor", [environment(suite) / "bin" / "gpuwhy", "doctor"], limit=LIMIT)
    library = str(environment(suite)) in doctor.stdout
    yield expect("python.command.doctor", library, doctor.stdout.strip()[:300])


def in_order(suite: Suite, order: str) -> Iterator[Result]:
    """Records present, by the first action."""
    run = call(suite, order, suite.workloads / "module" / "orders.py", order)
    found = last(run)
    complete = found.get("launch_calls", 0) >= LAUNCHES and found.get("without_launch") == 0
    kernels = found.get("kernels", 0) >= LAUNCHES and found.get("lost") == 0
    if order == "late":
        right = found.get("state") == "late" and found.get("late_warnings") == 1 and kernels
    elif order == "available":
        # The reported state must match the records.
        right = kernels and (found.get("state") == "complete") == complete
    elif order == "torch_profiler":
        # All kernels, or a reason.
        after = found.get("kernels_after", 0) >= LAUNCHES or "its own clock" in found.get("refused_after", "")
        right = complete and kernels and after
    else:
        right = found.get("state") == "complete" and complete and kernels and found.get("late_warnings") == 0
    yield expect(f"python.order.{order}", run.code == 0 and right, json.dumps(found) if found else why(run))


def costs(suite: Suite) -> Iterator[Result]:
    run = call(suite, "costs", suite.workloads / "module" / "costs.py")
    found = last(run)
    suite.record("python", found)
    few = found.get("range", 1e9) / 1e3 <= RANGE_US
    detail = ", ".join(f"{name} {value:.0f}" for name, value in found.items())
    yield expect("python.costs", run.code == 0 and few, f"{detail} (ns; the last two: counts)" if found else why(run))


def training(suite: Suite, which: str, module: str) -> Iterator[Result]:
    """The callback of a framework, working and broken."""
    script = suite.workloads / "module" / "trainings.py"
    if call(suite, f"has-{module}", "-c", f"import {module}").code != 0:
        yield skipped(f"python.{which}", f"{module} is not installed")
        return
    run = call(suite, which, script, which)
    found = last(run)
    right = found.get("report") and abs(found.get("steps", 0) - BATCHES) <= 1 and found.get("kernels", 0) > BATCHES
    yield expect(f"python.{which}", run.code == 0 and bool(right), json.dumps(found) if found else why(run))
    broken = call(suite, f"{which}-broken", script, which, "--broken")
    said = broken.stderr.count("gpuwhy: measuring has ended, and training goes on")
    yield expect(f"python.{which}.broken", broken.code == 0 and said == 1, why(broken))


def judged(suite: Suite) -> Iterator[Result]:
    if call(suite, "has-pytest", "-c", "import pytest").code != 0:
        yield skipped("python.pytest", "pytest is not installed")
        return
    script = suite.workloads / "module" / "judged_tests.py"
    run = call(suite, "pytest", "-m", "pytest", "-p", "no:cacheprovider", "--gpuwhy-required", "-q",
               "-W", "error::gpuwhy.LateStart", script)
    wrong = "3 launching calls, at most 2 expected" in run.stdout and "calls waited for the device" in run.stdout
    empty = "has measured nothing" in run.stdout
    counts = "1 failed, 4 passed, 1 error" in run.stdout
    yield expect("python.pytest", run.code == 1 and wrong and empty and counts, run.stdout.strip()[-400:])


def notebook(suite: Suite) -> Iterator[Result]:
    if call(suite, "has-nbclient", "-c", "import nbclient, ipykernel").code != 0:
        yield skipped("python.notebook", "nbclient and ipykernel are not installed: put their wheels into dist/more")
        return
    run = call(suite, "notebook", suite.workloads / "module" / "notebook.py")
    found = last(run)
    right = found.get("html") == 2 and found.get("frames") == 1 and found.get("value") and not found.get("errors")
    yield expect("python.notebook", run.code == 0 and bool(right and found.get("static")), json.dumps(found) if found else why(run))


def python(suite: Suite) -> Iterator[Result]:
    """All parts, in one environment."""
    failed = False
    for result in install(suite):
        failed |= result.status.value == "FAIL"
        yield result
    if failed:
        return
    if call(suite, "has-torch", "-c", "import torch").code != 0:
        yield skipped("python.torch", "PyTorch is not installed")
        return
    # Only `costs` measures time.
    parts = [command, judged, notebook, *(functools.partial(in_order, order=order) for order in ORDERS),
             *(functools.partial(training, which=which, module=module) for which, module in FRAMEWORKS.items())]
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        for results in pool.map(lambda part: list(part(suite)), parts):
            yield from results
    yield from costs(suite)


def checks() -> list[Check]:
    return [Check("python", python, credit=120.0)]
