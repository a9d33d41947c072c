"""Jobs of two ranks by the lines of docs/guide/launchers.md: bare, under gpuwhy, and under torch.profiler.

Output and exit code are those of the bare run, each rank has as many kernels as torch.profiler has, NCCL's operations
are joined, and the exposed part of communication is that of torch.profiler's events by interval union, as
HolisticTraceAnalysis defines it.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import signal
import statistics
import time
from collections.abc import Iterable, Iterator

from checks.nccl import JOINED, needs_two, rows_of
from harness import Check, Mode, Result, Run, Suite, expect, skipped
from trace_report import Trace, Unreadable

JOBS = ("ddp", "fsdp", "tensor", "pipeline", "serve")
# Maximum difference of exposed communication from that of torch.profiler's events of the same run, of its time.
SAME_RUN = 0.01
# Kernels of cuBLAS for a matrix product.
PRODUCT = ("nvjet", "sm80_xmma_gemm", "ampere", "cutlass", "void cutlass")
# Rounds of the measurement of overhead.
ROUNDS = 5


def torchrun(suite: Suite, job: str, *arguments: str) -> list[str]:
    python, *program = suite.python("jobs.py", job, *arguments)
    return [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *program]


def recorded(suite: Suite, command: list[str], *options: str) -> list[str]:
    return [str(suite.gpuwhy), "run", *options, "-o", "rank%q{RANK}.gpuwhy", "--", *command]


def traces(run: Run) -> dict[int, pathlib.Path]:
    """The trace of each rank.

    Raises Unreadable if a rank left none.
    """
    found = {rank: run.folder / f"rank{rank}.gpuwhy" for rank in range(2)}
    if missing := [str(path) for path in found.values() if not path.exists()]:
        raise Unreadable(f"no trace {missing}; {run.ending()}: {run.stderr.strip()[-300:]}")
    return found


def keep(suite: Suite, job: str, files: Iterable[pathlib.Path]) -> None:
    """Copies files to the suite's folder, if traces are kept."""
    if suite.keep_traces:
        (suite.out / "traces").mkdir(exist_ok=True)
        for path in files:
            shutil.copyfile(path, suite.out / "traces" / f"{job}_{path.name}")


def events(path: pathlib.Path) -> list[dict]:
    """Kernels in the trace of torch.profiler."""
    return [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "kernel"]


def union(intervals: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def exposed(kernels: list[dict]) -> float:
    """Share of the time of NCCL's kernels in which no other kernel ran."""
    of = [[(event["ts"], event["ts"] + event["dur"]) for event in kernels if event["name"].startswith("nccl") is is_nccl]
          for is_nccl in (True, False)]
    communication, computation = union(of[0]), union(of[1])
    total = sum(end - begin for begin, end in communication)
    covered, at = 0.0, 0
    for begin, end in communication:
        while at < len(computation) and computation[at][1] <= begin:
            at += 1
        here = at
        while here < len(computation) and computation[here][0] < end:
            covered += min(end, computation[here][1]) - max(begin, computation[here][0])
            here += 1
    return 1 - covered / total if total else 0.0


def exposed_by_gpuwhy(trace: Trace) -> float:
    """Time in which the device only communicates, of all time in which it communicates."""
    [device] = trace.report["devices"]
    alone = device["leaves"]["communication"]
    beneath = sum(pair["ns"] for pair in device["overlap"] if (pair["top"], pair["beneath"]) == ("compute", "communication"))
    return alone / max(1, alone + beneath)


def one_job(job: str) -> Check:
    def check(suite: Suite) -> Iterator[Result]:
        if no := needs_two(suite, f"jobs.{job}"):
            yield no
            return
        command = torchrun(suite, job)
        bare = suite.run(f"jobs-{job}-bare", command)
        if bare.code != 0:
            yield skipped(f"jobs.{job}", f"fails without gpuwhy: {bare.ending()}: {bare.stderr.strip()[-600:]}")
            return
        run = suite.run(f"jobs-{job}", recorded(suite, command, "--nccl"))
        yield expect(
            f"jobs.{job}.same", (run.code, run.stdout) == (bare.code, bare.stdout),
            f"{run.ending()}, printed {run.stdout.strip()!r}; {bare.ending()} bare, {bare.stdout.strip()!r}")
        found = {rank: Trace(suite, path) for rank, path in traces(run).items()}
        keep(suite, job, traces(run).values())
        folder = suite.folder(f"jobs-{job}-torch")
        profiled = suite.run(f"jobs-{job}-profiled", torchrun(suite, job, "--profile", str(folder)))
        keep(suite, job, folder.glob("*.json"))
        for rank, trace in found.items():
            file = folder / f"rank{rank}.json"
            if profiled.code != 0 or not file.exists():
                yield skipped(f"jobs.{job}.kernels.{rank}", f"torch.profiler: {profiled.ending()}: {profiled.stderr.strip()[-300:]}")
                continue
            kernels = events(file)
            losses = trace.losses()
            yield expect(
                f"jobs.{job}.kernels.{rank}", trace.records("kernels") == len(kernels) and not losses,
                f"{trace.records('kernels')} kernels, {len(kernels)} by torch.profiler; lost: {losses}")
            rows = rows_of(trace)
            nccl = sum(row["kernels"] for row in rows)
            joined = sum(row["basis"]["plugin"] + row["basis"]["order"] for row in rows)
            yield expect(
                f"jobs.{job}.joined.{rank}", nccl > 0 and joined >= JOINED * nccl,
                f"{joined} of {nccl} kernels of NCCL have their operation; "
                f"{[(row['function'], row['kernels'], row['bytes']) for row in rows]}")
            # The same events, read by gpuwhy, and the same program in another run.
            oracle, read = exposed(kernels), exposed_by_gpuwhy(Trace(suite, file))
            yield expect(
                f"jobs.{job}.exposed.{rank}", abs(read - oracle) <= SAME_RUN,
                f"{read:.2%} of the time of communication is exposed, by interval union {oracle:.2%}; "
                f"in gpuwhy's own run {exposed_by_gpuwhy(trace):.2%}; bottleneck: {trace.bottleneck_line()}")
        merged = suite.run(f"jobs-{job}-merge", [suite.gpuwhy, "merge", "--json", *traces(run).values()])
        answer = json.loads(merged.stdout) if merged.code == 0 else {}
        yield expect(
            f"jobs.{job}.merge", len(answer.get("ranks", [])) == 2 and answer.get("collectives", 0) > 0,
            f"{merged.ending()}: {answer.get('collectives')} collectives by {answer.get('matched_by')}, straggler "
            f"{answer.get('straggler')}, doubts {answer.get('doubts')}; {merged.stderr.strip()[-200:]}")
        suite.run(f"jobs-{job}-screen", [suite.gpuwhy, "report", traces(run)[0]])
        suite.run(f"jobs-{job}-merge-screen", [suite.gpuwhy, "merge", *traces(run).values()])

    return Check(f"jobs.{job}", check, credit=60.0)


def live(suite: Suite) -> Iterator[Result]:
    """`top`, the exporter and `start --all --at-step` beside a running job of two ranks."""
    if no := needs_two(suite, "jobs.live"):
        yield no
        return
    control = suite.folder("jobs-control")
    command = recorded(suite, torchrun(suite, "ddp", "--steps", "4000"), "-c", "command", "-p", "step")
    began = time.monotonic()
    process, folder = suite.start("jobs-live", command, extra={"GPUWHY_CONTROL": str(control)}, mode=Mode.BARE)
    extra = {"GPUWHY_CONTROL": str(control)}

    def top() -> list[dict]:
        asked = suite.run("jobs-top", [suite.gpuwhy, "top", "--json"], extra=extra)
        return [json.loads(line) for line in asked.stdout.splitlines() if line.startswith("{")]

    states: list[dict] = []
    while time.monotonic() < began + 90:
        states = top()
        if len([state for state in states if (state.get("steps_begun") or 0) > 20]) == 2:
            break
        time.sleep(1)
    # torchrun itself uses CUDA, too: it has no rank.
    ranks = sorted(str(state["rank"]) for state in states if state.get("rank") is not None)
    yield expect("jobs.live.top", ranks == ["0", "1"], f"ranks {ranks} of {len(states)} processes")
    screen = suite.run("jobs-top-once", [suite.gpuwhy, "top", "--once"], extra=extra)
    metrics = suite.run("jobs-exporter", [suite.gpuwhy, "exporter", "--once"], extra=extra)
    yield expect(
        "jobs.live.exporter", metrics.code == 0 and all(f'rank="{rank}"' in metrics.stdout for rank in (0, 1)),
        f"{metrics.ending()}, {len(metrics.stdout.splitlines())} lines; {screen.stdout.strip()[-400:]}")
    at = max((state.get("steps_begun") or 0) for state in states) + 100 if states else 200
    started = suite.run(
        "jobs-start", [suite.gpuwhy, "start", "--all", "--at-step", str(at), "--steps", "3"], extra=extra, limit=60.0)
    yield expect(
        "jobs.live.start", started.code == 0 and all(f"begins at step {at} (rank {rank})" in started.stdout for rank in range(2)),
        f"{started.ending()}: {started.stdout.strip()}; {started.stderr.strip()[-300:]}")
    while process.poll() is None and time.monotonic() < began + 120:
        if all((state.get("steps_begun") or 0) > at + 10 for state in top() or [{}]):
            break
        time.sleep(1)
    process.send_signal(signal.SIGINT)
    run = suite.finish(process, folder, time.monotonic(), 30.0)
    captures = {rank: Trace(suite, path).report["captures"] for rank, path in traces(run).items()}
    kernels = [[capture["kernels"] for capture in of_rank] for of_rank in captures.values()]
    yield expect(
        "jobs.live.captures", [len(of) for of in kernels] == [1, 1] and kernels[0] == kernels[1] and kernels[0][0] > 0,
        f"kernels of each rank's captures: {kernels}; {run.ending()}")


def tried(suite: Suite) -> Iterator[Result]:
    """`gpuwhy try` measures one process, and says so to a launcher of several."""
    if no := needs_two(suite, "jobs.try"):
        yield no
        return
    run = suite.run("jobs-try", [suite.gpuwhy, "try", "--", *torchrun(suite, "ddp", "--steps", "150")], limit=120.0)
    said = (run.stdout + run.stderr).strip()
    yield expect("jobs.try", run.code == 2 and "pass the command of one process" in said, f"{run.ending()}: {said[-700:]}")


def two_devices(suite: Suite) -> Iterator[Result]:
    """One process on two devices: each has its kernels, and copies between them have their bytes."""
    if no := needs_two(suite, "jobs.devices"):
        yield no
        return
    run = suite.run("jobs-devices", suite.python("devices.py", "two"), Mode.COMMAND)
    did = json.loads(run.stdout.splitlines()[-1])
    [path] = run.traces()
    trace = Trace(suite, path)
    suite.keep_trace("two_devices", run)
    for device in trace.report["devices"]:
        kernels = sum(kernel["count"] for kernel in device["kernels"] if kernel["name"].startswith(PRODUCT))
        yield expect(
            f"jobs.devices.kernels.{device['id']}", kernels == did["products"][device["id"]],
            f"{kernels} matrix products, the program did {did['products'][device['id']]}")
    copies = [copy for device in trace.report["devices"] for copy in device["copies"] if "peer" in json.dumps(copy)]
    total = sum(copy["bytes"] for copy in copies)
    yield expect("jobs.devices.peer", total == did["peer_bytes"], f"{total} bytes, the program copied {did['peer_bytes']}: {copies}")


def shared_device(suite: Suite) -> Iterator[Result]:
    """Two processes on one device: the report of one names the other."""
    name = "jobs.shared"
    command = suite.python("devices.py", "one", "--seconds", "8")
    began = time.monotonic()
    other, other_folder = suite.start("jobs-other", command, Mode.BARE)
    run = suite.run("jobs-shared", command, Mode.COMMAND)
    suite.finish(other, other_folder, began)
    [path] = run.traces()
    trace = Trace(suite, path)
    suite.keep_trace("shared_device", run)
    seen = [process for device in trace.report["devices"] for process in device["other_processes"]]
    yield expect(
        f"{name}.named", any(process["pid"] == other.pid for process in seen),
        f"the other process is {other.pid}; found {seen}")
    yield expect(
        f"{name}.said", str(other.pid) in trace.answer() or "nother process" in trace.answer(), trace.answer()[:500])


def cost(suite: Suite) -> Iterator[Result]:
    """A step of DDP: bare, with gpuwhy, with gpuwhy and the plugin, in turns."""
    if no := needs_two(suite, "jobs.cost"):
        yield no
        return
    job = torchrun(suite, "ddp", "--steps", "100", "--step-time")
    kinds = {"bare": job, "without": recorded(suite, job), "with": recorded(suite, job, "--nccl")}
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(ROUNDS):
        for kind, command in kinds.items():
            run = suite.run(f"jobs-cost-{kind}-{turn}", command)
            [step] = [float(line.split()[1]) for line in run.stderr.splitlines() if line.startswith("step ")]
            found[kind].append(step)
    ratios = {kind: sorted(a / b for a, b in zip(found[kind], found["bare"])) for kind in ("without", "with")}
    suite.record("jobs-cost", {"step_ms": found})
    yield expect(
        "jobs.cost", all(len(of) == ROUNDS for of in found.values()),
        f"a step of DDP takes {statistics.median(found['bare']):.2f} ms bare; " + ", ".join(
            f"{kind} the plugin {statistics.median(of):.3f} of bare ({of[0]:.3f} to {of[-1]:.3f})" for kind, of in ratios.items()))


def checks() -> list[Check]:
    return [Check("jobs.devices", two_devices), Check("jobs.shared", shared_device), *(one_job(job) for job in JOBS),
            Check("jobs.live", live, credit=60.0), Check("jobs.try", tried, credit=60.0), Check("jobs.cost", cost, credit=100.0)]
