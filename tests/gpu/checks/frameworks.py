"""Programs of widely used libraries, bare and under every mode: they end as they do without gpuwhy, compute the same,
and losses are counted.

`frameworks-captured` switches recording on and off while the programs run. `frameworks-cost` measures the overhead of
recording: by the time of each program's own loop, one program at a time.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import threading
import time
from collections.abc import Iterator

from harness import HERE, STEP_LIMIT, Check, Mode, Result, Run, Status, Suite, expect, skipped
from trace_report import Trace

NOT_INSTALLED = 77
# Number of runs in the default mode of a program that once crashed under gpuwhy: it failed in more than half of its
# runs.
AGAIN = 10
# Pairs of a bare and a traced run, whose median counts.
ROUNDS = 3

# One process has the counters of a device at a time; refusals are tested elsewhere.
COUNTERS = threading.Lock()

JAX = ("plain", "adam", "donated", "counted", "optax", "scan", "control", "sharded", "shapes", "beside_torch")
TORCH = ("eager", "compile", "compile_graphs", "compile_autotune", "captured", "loaders", "threads", "triton")
DISTRIBUTED = ("ddp", "fsdp")
HUB = ("generate", "generate_static", "trainer", "lightning", "timm", "geometric")
ARRAY = ("cupy", "numba", "mpi")
# Programs that are captured in mid-run: graphs of each framework, threads that launch, and no graphs.
CAPTURED = (
    "jax.plain", "jax.scan", "torch.captured", "torch.compile_graphs", "torch.threads", "hub.generate_static", "array.cupy")
# Time between `gpuwhy start` and `gpuwhy stop`, seconds, and how many times as many steps as usual the programs make.
SWITCHED, LONGER = 0.5, 3
# How long many programs are switched, seconds, and the interval of commands: recording stays on for 0.2 s after a stop.
SWITCHED_FOR, SWITCHED_EVERY = 120.0, 0.6
# Exit status of each program.
ENDINGS = {"exception": 1, "sys_exit": 5, "os_exit": 4, "fork": 3}
# Ways to use a CUDA graph; see workloads/graphs.cu.
GRAPHS = ("relaunch", "parameters", "update", "recapture", "instantiate", "child", "copies", "memory", "disable", "streams", "upload")


def settings(suite: Suite) -> dict[str, dict[str, str]]:
    """Variables of each run, by its name."""
    found: dict[str, dict[str, str]] = {
        "default": {}, "node": {"GPUWHY_CUDA_GRAPH_TRACE": "node"}, "graph": {"GPUWHY_CUDA_GRAPH_TRACE": "graph"},
        "full": {"GPUWHY_MODE": "full"}, "monitor": {"GPUWHY_MODE": "monitor"}, "counters": {"GPUWHY_GPU_METRICS": "on"},
        "memory": {"GPUWHY_CUDA_MEMORY_USAGE": "on"},
        # Counters half a second after the first context: short programs end while these are being opened.
        "sampled": {"GPUWHY_MODE": "monitor", "GPUWHY_GPU_METRICS": "auto"},
        "auto": {"GPUWHY_MODE": "auto", "GPUWHY_GPU_METRICS": "auto", "GPUWHY_MAX_OVERHEAD": "20%"}}
    if suite.other_cupti:
        # With the program's library both `node` and `graph` may equal the default.
        found = {name: found[name] for name in ("default", "full", "monitor", "counters", "memory", "sampled", "auto")}
        found["graph, other CUPTI"] = {"GPUWHY_CUDA_GRAPH_TRACE": "graph", "GPUWHY_CUPTI_PATH": suite.other_cupti}
    return found


def loop_seconds(run: Run) -> float | None:
    """Duration of the program's loops by its own clock, without start-up."""
    said = [float(line.split()[1]) for line in run.stderr.splitlines() if line.startswith("loop ")]
    return sum(said) or None


def lost(suite: Suite, run: Run) -> str:
    """Losses that the reports of a run count, in words; empty if nothing is lost."""
    found: dict[str, int] = {}
    for path in run.traces():
        for name, count in Trace(suite, path).losses().items():
            found[name] = found.get(name, 0) + count
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items()))


def last_line(run: Run) -> str:
    """End of the program's stderr output."""
    lines = run.stderr.strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""


def compare(suite: Suite, name: str, setting: str, bare: Run, traced: Run) -> Result:
    """One line for one traced run."""
    same = bare.code == traced.code and bare.stdout == traced.stdout
    losses = lost(suite, traced)
    detail = f"{traced.ending()}{'' if same else f' ({bare.ending()} bare)'}, {len(traced.traces())} traces"
    if bare.stdout != traced.stdout:
        detail += f", printed {traced.stdout.strip()!r}, bare {bare.stdout.strip()!r}"
    if not same:
        detail += last_line(traced)
    if losses:
        detail += f"; lost: {losses}"
    return expect(f"frameworks.{name}.{setting}", same and not losses, detail)


def program(name: str, command: list[str], ends_with: int = 0, uses_nccl: bool = False) -> Check:
    def check(suite: Suite) -> Iterator[Result]:
        bare = suite.run(f"{name}-bare", command)
        if bare.code == NOT_INSTALLED:
            yield skipped(f"frameworks.{name}", bare.stderr.strip().splitlines()[-1])
            return
        if bare.code != ends_with:
            # gpuwhy was not loaded: two libraries of the host may be incompatible.
            yield skipped(f"frameworks.{name}", f"fails without gpuwhy: {bare.ending()}{last_line(bare)}")
            return
        yield expect(f"frameworks.{name}.bare", True, f"{bare.ending()}, {bare.stdout.strip()!r}")
        plugin = {"nccl": {"NCCL_PROFILER_PLUGIN": "libprof.so"}} if uses_nccl else {}
        for setting, variables in {**settings(suite), **plugin}.items():
            with COUNTERS if setting in ("counters", "sampled", "auto") else contextlib.nullcontext():
                traced = suite.run(f"{name}-{setting}", command, Mode.VARIABLE, variables)
            yield compare(suite, name, setting, bare, traced)

    return Check(f"frameworks.{name}", check, exclusive=False)


def cost(name: str, command: list[str]) -> Check:
    def check(suite: Suite) -> Iterator[Result]:
        """Bare and traced runs alternate, after a run that fills the caches of compilers."""
        if suite.run(f"{name}-warm", command).code == NOT_INSTALLED:
            yield skipped(f"frameworks-cost.{name}", "not installed")
            return
        ratios = []
        for turn in range(ROUNDS):
            bare = loop_seconds(suite.run(f"{name}-cost-bare-{turn}", command))
            traced = loop_seconds(suite.run(f"{name}-cost-{turn}", command, Mode.VARIABLE))
            if bare and traced:
                ratios.append(traced / bare)
        yield expect(f"frameworks-cost.{name}", len(ratios) == ROUNDS,
                     f"{statistics.median(ratios or [0]):.3f} of bare ({', '.join(f'{ratio:.3f}' for ratio in sorted(ratios))})")

    return Check(f"frameworks-cost.{name}", check)


def captured(name: str) -> Check:
    command = [*script(name), "--repeat", str(LONGER)]

    def check(suite: Suite) -> Iterator[Result]:
        """A program whose recording starts and stops by command ends as it does without gpuwhy."""
        bare = suite.run(f"{name}-captured-bare", command)
        if bare.code != 0:
            yield skipped(f"frameworks-captured.{name}", f"fails without gpuwhy: {bare.ending()}{last_line(bare)}")
            return
        variables = {"GPUWHY_CONTROL": str(suite.folder(f"{name}-control"))}
        began = time.monotonic()
        process, folder = suite.start(
            f"{name}-captured", command, Mode.VARIABLE,
            {**variables, "GPUWHY_CAPTURE_RANGE": "command", "GPUWHY_CAPTURE_RANGE_END": "none"})
        switches = 0
        while process.poll() is None and time.monotonic() < began + STEP_LIMIT:
            verb = "stop" if switches % 2 else "start"
            # Before the first CUDA call nobody answers.
            switches += suite.run(f"{name}-{verb}", [suite.gpuwhy, verb, "--all"], extra=variables).code == 0
            time.sleep(SWITCHED)
        traced = suite.finish(process, folder, began)
        result = compare(suite, name, "captured", bare, traced)
        yield expect(
            f"frameworks-captured.{name}", result.status is Status.PASS and switches >= 2, f"{switches} switches, {result.detail}")

    return Check(f"frameworks-captured.{name}", check, exclusive=False)


def graph_uses(suite: Suite) -> Iterator[Result]:
    """CUDA graphs used in the ways that frameworks use them, by a program without a framework."""
    tool = suite.scratch / "graphs"
    built = suite.compile(suite.workloads / "graphs.cu", tool)
    if built.code != 0:
        yield expect("frameworks.graphs.build", False, built.stderr.strip()[-200:])
        return
    for use in GRAPHS:
        yield from program(f"graphs.{use}", [str(tool), use]).function(suite)


def again(suite: Suite) -> Iterator[Result]:
    """A graph that copies, which CUPTI 13.0 fails to launch if complete graphs are recorded: many runs in the default
    mode."""
    command = script("jax.counted")
    runs = [suite.run(f"jax-again-{turn}", command, Mode.VARIABLE) for turn in range(AGAIN)]
    if runs[0].code == NOT_INSTALLED:
        yield skipped("frameworks.again", "JAX is not installed")
        return
    printed = {run.stdout.strip() for run in runs}
    yield expect("frameworks.again", all(run.code == 0 for run in runs) and len(printed) == 1,
                 f"{sum(run.code == 0 for run in runs)} of {AGAIN} runs ended with 0, {sorted(printed)}")


def switched(suite: Suite) -> Iterator[Result]:
    """Programs that launch graphs all the time, side by side, while recording goes on and off: does one fail?"""
    tool = suite.scratch / "graphs-switched"
    built = suite.compile(suite.workloads / "graphs.cu", tool)
    if built.code != 0:
        yield expect("frameworks-switched.build", False, built.stderr.strip()[-200:])
        return
    commands = [*((use, [str(tool), use, str(10**9)]) for use in ("relaunch", "copies", "streams")),
                *(("jax.scan", [*script("jax.scan"), "--repeat", "1000"]) for _ in range(4)),
                *(("hub.generate_static", [*script("hub.generate_static"), "--repeat", "100"]) for _ in range(2))]
    control = {"GPUWHY_CONTROL": str(suite.folder("switched-control"))}
    extra = {**control, "GPUWHY_CAPTURE_RANGE": "command", "GPUWHY_CAPTURE_RANGE_END": "none", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.03"}
    running = [(name, *suite.start(f"switched-{name}", command, Mode.VARIABLE, extra)) for name, command in commands]
    began, switches = time.monotonic(), 0
    while time.monotonic() < began + SWITCHED_FOR:
        for verb in ("start", "stop"):
            switches += suite.run(f"switched-{verb}", [suite.gpuwhy, verb, "--all"], extra=control).code == 0
            time.sleep(SWITCHED_EVERY)
    failed = [name for name, process, _ in running if process.poll() not in (None, 0)]
    for _, process, folder in running:
        process.kill()
        suite.finish(process, folder, began)
    yield expect("frameworks-switched", not failed, f"{switches} starts and stops of {len(running)} programs; failed: {failed}")


def script(name: str) -> list[str]:
    return [sys.executable, str(HERE / "workloads" / "frameworks" / "programs.py"), name]


def checks() -> list[Check]:
    families = (("jax", JAX), ("torch", TORCH), ("hub", HUB), ("array", ARRAY))
    found = [program(f"{family}.{name}", script(f"{family}.{name}")) for family, names in families for name in names]
    costs = [cost(f"{family}.{name}", script(f"{family}.{name}")) for family, names in families for name in names]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=gpu"]
    found += [program(f"torch.{name}", [*torchrun, *script(f"torch.{name}")[1:]], uses_nccl=True) for name in DISTRIBUTED]
    found += [program(f"ending.{name}", script(f"ending.{name}"), code) for name, code in ENDINGS.items()]
    found += [captured(name) for name in CAPTURED]
    found += [Check("frameworks-switched", switched)]
    return [*found, Check("frameworks.graphs", graph_uses, exclusive=False), Check("frameworks.again", again, exclusive=False), *costs]
