"""What tracing costs: no tool, CUPTI alone, gpuprof, Nsight Systems and torch.profiler on the same programs, interleaved.

    python3 benches/gpu/overhead.py --bin target/release --out DIR [--docs docs] [--rounds 7] [--devices N]
                                    [--budget SECONDS] [--only NAME]...

Absolute times drift by several percent over minutes (clocks, temperature, neighbours), so the tools take turns within
each round and in a rotating order, and what counts is the median over the rounds of a tool's time divided by the time
without a tool *of the same round*. The programs time themselves; start-up and the end of the process are a column of
their own, because a trace that is written in the background may come due there. With --devices N, N programs are measured at the same
time, each with a GPU and a share of the cores to itself; what is compared ran on the same ones.
Four at once on one virtual machine scattered far more than one alone (docs/OVERHEAD.md): look at the ranges.

Writes overhead.json (every single measurement) after each run, so that a run that is cut off leaves what it had, and
overhead.md. With --merge the measurements of an earlier overhead.json are kept and added to. With --docs it ends with
PERFORMANCE.md (performance.py) and overhead.svg (plot.py) in that folder.
It measures the tools as they are started by default. nsys traces a CUDA graph as one event by default and gpuprof
traces its nodes: `nsys-node` is the comparison like for like. `floor` is CUPTI recording what gpuprof asks it for, and
nobody looking at it (floor.cpp): no tool that records these kinds can cost less.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "gpu"))

from harness import REPOSITORY, Mode, Run, Suite, find_nsys  # noqa: E402
from trace_report import Unreadable, single  # noqa: E402

# Longest run of one program under one tool, seconds.
RUN_LIMIT = 180.0
# Variables of libprof.so that make up a variant of gpuprof. Modes are tools of their own; the other variants are
# measured when named by --tool.
MODES = ("gpuprof", "gpuprof-watch", "gpuprof-full")
VARIANTS = {
    "gpuprof": {},
    "gpuprof-watch": {"GPUPROF_MODE": "watch"},
    "gpuprof-full": {"GPUPROF_MODE": "full"},
    "gpuprof-graphs": {"GPUPROF_CUDA_GRAPHS": "graph"},
    "gpuprof-no-sampling": {"GPUPROF_SAMPLING": "off"},
    "gpuprof-no-trace": {"GPUPROF_OUTPUT": "off"},
    "gpuprof-dormant": {"GPUPROF_CAPTURE_RANGE": "cudaProfilerApi"},
    "gpuprof-dependencies": {"GPUPROF_DEPENDENCIES": "on"},
}
ORDER = ("launch", "graph", "copy", "sm", "threads", "mlp", "resnet", "gpt")
HERE = pathlib.Path(__file__).resolve().parent
NSYS = ["-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "-f", "true", "-o", "report"]


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A program that prints its own time."""

    name: str
    command: list[str]
    figure: str  # regular expression with the number in group 1
    unit: str
    is_torch: bool = False
    graphs: bool = False  # launches CUDA graphs, so that the level of tracing matters


def benchmarks(suite: Suite) -> list[Benchmark]:
    bench = str(suite.microbench)
    per_operation, per_step = r"time_per_operation_ns=([\d.]+)", r'"ms_per_step": ([\d.]+)'

    def training(model: str, steps: int) -> Benchmark:
        arguments = [model, "--steps", str(steps), "--repetitions", "3"]
        return Benchmark(model, suite.python("train.py", *arguments), per_step, "ms/step", is_torch=True)

    # Those that take longest first, so that several devices end at about the same time.
    return [
        training("gpt", 25),
        training("mlp", 200),
        training("resnet", 30),
        Benchmark("threads", [bench, "threads", "2"], per_operation, "ns/kernel"),
        Benchmark("launch", [bench, "launch", "100000"], per_operation, "ns/kernel"),
        Benchmark("sm", [bench, "sm", "20000"], per_operation, "ns/kernel"),
        Benchmark("copy", [bench, "copy", "100000"], per_operation, "ns/copy"),
        Benchmark("graph", [bench, "graph", "1000", "200"], per_operation, "ns/node", graphs=True),
    ]


def build_floor(suite: Suite) -> pathlib.Path | None:
    """libfloor.so, or None with a line that says why not."""
    try:
        return suite.compile_injection(HERE / "floor.cpp")
    except (FileNotFoundError, RuntimeError) as error:
        print(f"floor: left out, {error}", flush=True)
        return None


def tools_for(suite: Suite, benchmark: Benchmark, floor: pathlib.Path | None, asked: list[str]) -> list[str]:
    """The tools that there are, in a fixed order; variants of gpuprof only when asked for."""
    nsys = [] if suite.nsys is None else ["nsys", "nsys-node"] if benchmark.graphs else ["nsys"]
    torch = ["torch"] if benchmark.is_torch else []
    usual = [*MODES, "gpuprof-graphs"] if benchmark.graphs else MODES
    variants = [name for name in VARIANTS if name in usual or name in asked]
    tools = ["none", *(["floor"] if floor else []), *variants, *nsys, *torch]
    return [tool for tool in tools if not asked or tool in asked]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a program runs: a GPU, and the cores that no other program is measured on; without both, wherever it likes."""

    device: int | None = None
    cores: str = ""

    def command(self, command: list) -> list:
        return ["taskset", "-c", self.cores, *command] if self.cores else command

    def environment(self) -> dict[str, str]:
        return {} if self.device is None else {"CUDA_VISIBLE_DEVICES": str(self.device)}


def places(count: int) -> list[Place]:
    """One for each program that runs at the same time."""
    if count == 1:
        return [Place()]
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // count)
    return [Place(device, ",".join(map(str, cores[device * share:(device + 1) * share]))) for device in range(count)]


def own_account(suite: Suite, run: Run) -> dict:
    """What gpuprof says of its own run: its threads' share of a core, the rate of kernels, and what it lost."""
    trace = single(suite, run)
    seconds = trace.report["cost"]["observed_ns"] / 1e9
    return {
        "threads_share": trace.report["cost"]["threads_cpu_ns"] / 1e9 / seconds,
        "kernels_per_s": trace.records("kernels") / seconds, "lost": sum(trace.losses().values())}


def measure(
        suite: Suite, benchmark: Benchmark, tool: str, round_number: int, floor: pathlib.Path | None, place: Place) -> dict:
    """One run. `time` is None when the program failed or printed no figure; `error` says how it ended."""
    command, mode, extra = benchmark.command, Mode.BARE, {}
    if tool in VARIANTS:
        mode, extra = Mode.VARIABLE, VARIANTS[tool]
    elif tool == "floor":
        extra = {"CUDA_INJECTION64_PATH": str(floor)}
    elif tool == "torch":
        command = [*command, "--torch-trace", "torch-trace.json"]
    elif tool.startswith("nsys"):
        level = ["--cuda-graph-trace=node"] if tool == "nsys-node" else []
        extra = suite.nsys_environment()
        command = [suite.nsys, "profile", *NSYS, *level, *command]
    command = place.command([sys.executable, HERE / "witness.py", "used.json", *command])
    run = suite.run(f"{benchmark.name}-{tool}", command, mode, {**extra, **place.environment()}, limit=RUN_LIMIT)
    match = re.search(benchmark.figure, run.stdout)
    files = [*run.traces(), *run.folder.glob("report.nsys-rep"), *run.folder.glob("torch-trace.json")]
    used = json.loads((run.folder / "used.json").read_text()) if (run.folder / "used.json").exists() else {}
    # nsys reports its own failure to convert the result as the exit code; the program's figure stands all the same.
    succeeded = run.code == 0 or (tool.startswith("nsys") and run.code is not None)
    row = {
        "benchmark": benchmark.name, "unit": benchmark.unit, "tool": tool, "round": round_number,
        "time": float(match[1]) if match and succeeded else None, "wall_s": round(run.seconds, 3),
        "after_last_line_s": used.get("after_last_line_s"), "cpu_s": used.get("cpu_s"), "peak_mib": used.get("peak_mib"),
        "trace_bytes": sum(file.stat().st_size for file in files)}
    if row["time"] is None:
        lines = run.stderr.strip().splitlines()
        row["error"] = f"{run.ending()}: {lines[-1][:200] if lines else 'no figure in its output'}"
    elif tool == "gpuprof":
        try:
            row |= own_account(suite, run)
        except Unreadable as error:
            row |= {"time": None, "error": str(error)}
    shutil.rmtree(run.folder, ignore_errors=True)
    return row


def median_of(rows: list[dict], column: str, digits: str) -> str:
    values = [row[column] for row in rows if row.get(column) is not None]
    return format(statistics.median(values), digits) if values else ""


def ratio(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f}" if ratios else ""


def paired_ratios(rows: list[dict], tool: str, base_tool: str = "none") -> list[float]:
    """Time with the tool over time with the other one, for each round that has both."""
    base = {row["round"]: row["time"] for row in rows if row["tool"] == base_tool and row["time"]}
    return [row["time"] / base[row["round"]] for row in rows if row["tool"] == tool and row["time"] and row["round"] in base]


def table(rows: list[dict]) -> str:
    """The Markdown table: medians, and the range of the ratios over the rounds."""
    lines = [
        "| program | tool | median | cost: median (range) | over floor | CPU, s | peak, MiB | to the answer, s | trace, MB "
        "| rounds |", "|---|---|---|---|---|---|---|---|---|---|"]
    for name in dict.fromkeys(row["benchmark"] for row in rows):
        mine = [row for row in rows if row["benchmark"] == name]
        for tool in dict.fromkeys(row["tool"] for row in mine):
            of_tool = [row for row in mine if row["tool"] == tool]
            good = [row for row in of_tool if row["time"]]
            if not good:
                lines.append(f"| {name} | {tool} | failed: {of_tool[-1].get('error', '')[:80]} | | | | | | | 0 |")
                continue
            ratios, over_floor = paired_ratios(mine, tool), paired_ratios(mine, tool, "floor")
            cost = "" if tool == "none" or not ratios else (
                f"{statistics.median(ratios) - 1:+.1%} ({min(ratios) - 1:+.1%} .. {max(ratios) - 1:+.1%})")
            size = "" if tool == "none" else f"{statistics.median(row['trace_bytes'] for row in good) / 1e6:.1f}"
            lines.append(
                f"| {name} | {tool} | {statistics.median(row['time'] for row in good):.4g} {good[0]['unit']} | {cost} | "
                f"{ratio(over_floor) if tool not in ('none', 'floor') else ''} | {median_of(good, 'cpu_s', '.1f')} | "
                f"{median_of(good, 'peak_mib', '.0f')} | {median_of(good, 'after_last_line_s', '.2f')} | {size} | {len(good)} |")
    return "\n".join(lines) + "\n"


@dataclasses.dataclass
class Measurements:
    """All rows so far, and the files that hold them."""

    out: pathlib.Path
    machine: str
    version: str
    rows: list[dict]
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def add(self, row: dict) -> None:
        with self.lock:
            self.rows.append(row)
            self.save()
        print(f"round {row['round']} {row['benchmark']} {row['tool']}: {row['time'] or row['error']}", flush=True)

    def save(self) -> None:
        # In the order of the programs, whichever came first.
        rows = sorted(self.rows, key=lambda row: (ORDER.index(row["benchmark"]), row["round"]))
        date = time.strftime("%Y-%m-%d", time.gmtime())
        measured = {"machine": self.machine, "date": date, "version": self.version, "measurements": rows}
        (self.out / "overhead.json").write_text(json.dumps(measured, indent=1) + "\n")
        (self.out / "overhead.md").write_text(f"{self.machine}\n\n{table(rows)}")


def describe_machine(suite: Suite) -> str:
    try:
        run = suite.run("nvidia-smi", ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    except OSError:
        return "unknown device"
    return run.stdout.strip().splitlines()[0] if run.code == 0 and run.stdout.strip() else "unknown device"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=REPOSITORY / "target" / "release", help="folder with libprof.so")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--microbench", type=pathlib.Path, help="built microbench (default: built here with nvcc)")
    parser.add_argument("--docs", type=pathlib.Path, help="folder for PERFORMANCE.md and overhead.svg")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="measure so many programs at once, each on its own GPU")
    parser.add_argument("--budget", type=float, default=3600.0, metavar="SECONDS", help="start no run after this time")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help=", ".join(ORDER))
    parser.add_argument("--tool", action="append", default=[], metavar="NAME", help=f"none, floor, nsys, nsys-node, torch, {', '.join(VARIANTS)}")
    parser.add_argument("--merge", type=pathlib.Path, metavar="JSON", help="keep the measurements of this file as well")
    parser.add_argument("--nsys", default=find_nsys())
    parser.add_argument("--nsys-libs", metavar="DIR", default=os.environ.get("GPUPROF_NSYS_LIBS"),
                        help="folder with libdw.so.1 and libelf.so.1 for nsys's importer")
    return parser.parse_args()


def main() -> int:
    options = parse()
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    suite = Suite(options.bin.resolve(), options.out.resolve(), options.nsys, options.nsys_libs, log_name="overhead-log.txt")
    if options.microbench:
        suite.microbench = options.microbench.resolve()
    else:
        suite.build_microbench()
    selected = [benchmark for benchmark in benchmarks(suite) if not options.only or benchmark.name in options.only]
    version = suite.run("version", [suite.gpuprof, "--version"]).stdout.strip()
    before = json.loads(options.merge.read_text())["measurements"] if options.merge else []
    measurements = Measurements(options.out, describe_machine(suite), version, before)
    measurements.save()

    measure_all(suite, options, selected, measurements, began + options.budget)
    shutil.rmtree(suite.scratch, ignore_errors=True)
    print("\n" + (options.out / "overhead.md").read_text())
    if options.docs:
        for script, name in [("performance.py", "PERFORMANCE.md"), ("plot.py", "overhead.svg")]:
            subprocess.run([sys.executable, HERE / script, options.out / "overhead.json", options.docs / name], check=True)
    return 0 if measurements.rows and all(row["time"] for row in measurements.rows) else 1


def measure_all(suite: Suite, options: argparse.Namespace, selected: list[Benchmark], measurements: Measurements, end: float) -> None:
    """All rounds of all programs, or as many runs as the budget allows."""
    floor = build_floor(suite)
    first_round = 1 + max((row["round"] for row in measurements.rows), default=-1)
    waiting = selected[:]
    lock = threading.Lock()

    def work(place: Place) -> None:
        while True:
            with lock:
                # Alone, a program does not wait for the last round of another one: the budget cuts all of them alike.
                mine = waiting[:] if options.devices == 1 else waiting[:1]
                del waiting[:len(mine)]
            if not mine:
                return
            for round_number in range(first_round, first_round + options.rounds):
                for benchmark in mine:
                    tools = tools_for(suite, benchmark, floor, options.tool)
                    turn = round_number % len(tools) if tools else 0
                    for tool in tools[turn:] + tools[:turn]:
                        if time.monotonic() > end:
                            print(f"{benchmark.name}: the time budget is spent in round {round_number}", flush=True)
                            return
                        measurements.add(measure(suite, benchmark, tool, round_number, floor, place))

    with concurrent.futures.ThreadPoolExecutor(options.devices) as pool:
        for done in [pool.submit(work, place) for place in places(options.devices)]:
            done.result()


if __name__ == "__main__":
    sys.exit(main())
