"""Resources that gpuwhy itself uses: processor time of its threads, memory, and time at start.

`floor` is CUPTI recording the same, without a reader (benches/gpu/floor.cpp): the rest of a figure is gpuwhy's. Runs
alternate. The four checks together take one minute.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import statistics
import time
from collections.abc import Iterator

from harness import CUDA_FOLDERS, REPOSITORY, Check, Mode, Result, Run, Suite, expect, skipped
from trace_report import single

# Part of a core at 100,000 kernels a second; MiB beyond CUPTI's own; ms before the first CUDA call; ms of a short
# process.
THREADS, MEMORY, HOOK, MOMENT = 0.05, 64, 2.0, 50.0
ROUNDS = 7
# Time between two readings of the memory, seconds.
PERIOD = 0.02


def floor(suite: Suite) -> dict[str, str]:
    """Variables of a program under CUPTI alone, with nodes of graphs, as gpuwhy records them.

    Raises FileNotFoundError without g++ or a CUDA toolkit.
    """
    library = suite.compile_injection(REPOSITORY / "benches" / "gpu" / "floor.cpp")
    return {"CUDA_INJECTION64_PATH": str(library), "FLOOR_RECORDS": "nodes", "FLOOR_FLUSH_MS": "100"}


def threads(suite: Suite) -> Iterator[Result]:
    """Processor time of our threads per kernel, times 100,000 kernels a second."""
    parts = []
    for number in range(3):
        run = suite.run(f"weight-threads-{number}", [suite.microbench, "launch", "500000", "--reps", "2"], Mode.VARIABLE)
        report = single(suite, run).report
        spent, kernels = report["cost"].get("threads_cpu_ns"), report["completeness"]["records"]["kernels"]
        if spent is None or kernels == 0:
            yield expect("weight.threads", False, f"threads {spent} ns, {kernels} kernels")
            return
        parts.append(spent / kernels * 1e5 / 1e9)
    middle = statistics.median(parts)
    yield expect("weight.threads", middle <= THREADS,
                 f"{middle:.1%} of a core at 100,000 kernels a second ({min(parts):.1%} to {max(parts):.1%}); aim {THREADS:.0%}")


def peak(suite: Suite, name: str, mode: Mode, extra: dict[str, str]) -> float:
    """Peak resident memory of the program with 8 launching threads, MiB."""
    began = time.monotonic()
    process, folder = suite.start(name, [suite.microbench, "threads", "3"], mode, extra)
    most = 0
    while process.poll() is None and time.monotonic() < began + 60:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        match = re.search(r"^VmHWM:\s*(\d+)", status, re.MULTILINE)
        most = max(most, int(match[1]) if match else 0)
        time.sleep(PERIOD)
    run = suite.finish(process, folder, began)
    if run.code != 0:
        raise RuntimeError(f"{name}: {run.ending()}: {run.stderr.strip()[-150:]}")
    return most / 1024


def memory(suite: Suite) -> Iterator[Result]:
    """Resident memory with 8 launching threads, beyond CUPTI's own."""
    try:
        alone = floor(suite)
    except FileNotFoundError as error:
        yield skipped("weight.memory", str(error))
        return
    beyond = []
    for number in range(3):
        bare = peak(suite, f"weight-memory-floor-{number}", Mode.BARE, alone)
        beyond.append(peak(suite, f"weight-memory-{number}", Mode.VARIABLE, {}) - bare)
    middle = statistics.median(beyond)
    yield expect("weight.memory", middle <= MEMORY,
                 f"{middle:.0f} MiB beyond CUPTI's own ({min(beyond):.0f} to {max(beyond):.0f}); aim {MEMORY} MiB")


def compile_start(suite: Suite) -> pathlib.Path:
    """The program that loads a library and calls its entry point, with CUPTI loaded before.

    Raises FileNotFoundError without cc or a CUDA toolkit, and RuntimeError if it does not compile.
    """
    cuda = next((path for path in map(pathlib.Path, CUDA_FOLDERS) if (path / "include" / "cuda.h").exists()), None)
    if cuda is None or shutil.which("cc") is None:
        raise FileNotFoundError("it needs cc and a CUDA toolkit")
    folders = [cuda / "extras" / "CUPTI" / "lib64", cuda / "lib64"]
    program = suite.scratch / "start"
    run = suite.run("start", [
        "cc", "-O2", "-o", program, suite.workloads / "start.c", *(f"-L{folder}" for folder in folders), "-ldl",
        "-Wl,--no-as-needed", "-lcupti", f"-Wl,-rpath,{':'.join(map(str, folders))}"])
    if run.code != 0:
        raise RuntimeError(f"it does not compile: {run.stderr.strip()[-200:]}")
    return program


def started(run: Run) -> tuple[float, float]:
    """Milliseconds that loading and the entry point took.

    Raises RuntimeError without figures.
    """
    match = re.search(r"load_ns=(\d+) hook_ns=(\d+) answer=1", run.stdout)
    if match is None:
        raise RuntimeError(f"{run.ending()}: {(run.stdout + run.stderr).strip()[-150:]}")
    return int(match[1]) / 1e6, int(match[2]) / 1e6


def hook(suite: Suite) -> Iterator[Result]:
    """Loading and the entry point before the first CUDA call, compared with a library that makes the same calls of
    CUPTI."""
    try:
        program, alone = compile_start(suite), floor(suite)
    except FileNotFoundError as error:
        yield skipped("weight.hook", str(error))
        return
    own, others = [], []
    for number in range(ROUNDS):
        settings = {name: value for name, value in alone.items() if name != "CUDA_INJECTION64_PATH"}
        others.append(started(suite.run(f"weight-hook-floor-{number}", [program, alone["CUDA_INJECTION64_PATH"]], Mode.BARE, settings)))
        own.append(started(suite.run(f"weight-hook-{number}", [program, suite.library], Mode.BARE, {"GPUWHY_REPORT": "off"})))
    beyond = [sum(one) - sum(other) for one, other in zip(own, others)]
    load, hooked, cupti = (statistics.median(part) for part in (
        [one[0] for one in own], [one[1] for one in own], [sum(other) for other in others]))
    yield expect("weight.hook", statistics.median(beyond) <= HOOK,
                 f"loading {load:.2f} ms, hooking in {hooked:.2f} ms; CUPTI alone {cupti:.2f} ms; beyond it "
                 f"{statistics.median(beyond):.2f} ms ({min(beyond):.2f} to {max(beyond):.2f}); aim {HOOK} ms")


def moment(suite: Suite) -> Iterator[Result]:
    """Time that gpuwhy adds to a process that creates a context and ends."""
    added, base = [], []
    for number in range(ROUNDS):
        seconds = {
            mode: suite.run(f"weight-moment-{mode.value}-{number}", [suite.microbench, "init"], mode).seconds
            for mode in ((Mode.BARE, Mode.VARIABLE) if number % 2 else (Mode.VARIABLE, Mode.BARE))}
        added.append(1e3 * (seconds[Mode.VARIABLE] - seconds[Mode.BARE]))
        base.append(1e3 * seconds[Mode.BARE])
    middle = statistics.median(added)
    yield expect("weight.moment", middle <= MOMENT,
                 f"{middle:.0f} ms more than {statistics.median(base):.0f} ms bare ({min(added):.0f} to {max(added):.0f}); "
                 f"aim {MOMENT:.0f} ms")


def checks() -> list[Check]:
    return [Check("weight.threads", threads), Check("weight.memory", memory), Check("weight.hook", hook),
            Check("weight.moment", moment)]
