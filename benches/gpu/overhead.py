"""What tracing costs: no tool, CUPTI alone, gpuprof, Nsight Systems and torch.profiler on the same programs, interleaved.

    python3 benches/gpu/overhead.py --bin target/release --out DIR [--docs docs] [--rounds 7] [--budget SECONDS] [--only NAME]...

Absolute times drift by several percent over minutes (clocks, temperature, neighbours), so the tools take turns within
each round and in a rotating order, and what counts is the median over the rounds of a tool's time divided by the time
without a tool *of the same round*. The programs time themselves; start-up and the end of the process are a column of
their own, because a trace that is written in the background may come due there.

Writes overhead.json (every single measurement) after each run, so that a run that is cut off leaves what it had, and
overhead.md. With --merge the measurements of an earlier overhead.json are kept and added to. With --docs it ends with
PERFORMANCE.md (performance.py) and overhead.svg (plot.py) in that folder.
It measures the tools as they are started by default. nsys traces a CUDA graph as one event by default and gpuprof
traces its nodes: `nsys-node` is the comparison like for like. `floor` is CUPTI recording what gpuprof asks it for, and
nobody looking at it (floor.cpp): no tool that records these kinds can cost less.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "gpu"))

from harness import REPOSITORY, Mode, Suite, find_nsys  # noqa: E402

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

    return [
        Benchmark("launch", [bench, "launch", "100000"], per_operation, "ns/kernel"),
        Benchmark("graph", [bench, "graph", "1000", "200"], per_operation, "ns/node", graphs=True),
        Benchmark("copy", [bench, "copy", "100000"], per_operation, "ns/copy"),
        Benchmark("sm", [bench, "sm", "20000"], per_operation, "ns/kernel"),
        training("mlp", 200),
        training("resnet", 30),
        training("gpt", 25),
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


def measure(suite: Suite, benchmark: Benchmark, tool: str, round_number: int, floor: pathlib.Path | None) -> dict:
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
    command = [sys.executable, HERE / "witness.py", "used.json", *command]
    run = suite.run(f"{benchmark.name}-{tool}", command, mode, extra, limit=RUN_LIMIT)
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


def save(out: pathlib.Path, machine: str, rows: list[dict]) -> None:
    measured = {"machine": machine, "date": time.strftime("%Y-%m-%d", time.gmtime()), "version": version(), "measurements": rows}
    (out / "overhead.json").write_text(json.dumps(measured, indent=1) + "\n")
    (out / "overhead.md").write_text(f"{machine}\n\n{table(rows)}")


@functools.cache
def version() -> str:
    """The commit that is measured, as far as this folder knows."""
    try:
        answer = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    except OSError:
        return "not recorded"
    return answer.stdout.strip() or "not recorded"


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
    parser.add_argument("--budget", type=float, default=3600.0, metavar="SECONDS", help="start no run after this time")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="launch, graph, copy, sm, mlp, resnet, gpt")
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
    rows: list[dict] = json.loads(options.merge.read_text())["measurements"] if options.merge else []
    machine = describe_machine(suite)

    rows = run_rounds(suite, options, selected, rows, machine, began)
    shutil.rmtree(suite.scratch, ignore_errors=True)
    print("\n" + (options.out / "overhead.md").read_text())
    if options.docs:
        for script, name in [("performance.py", "PERFORMANCE.md"), ("plot.py", "overhead.svg")]:
            subprocess.run([sys.executable, HERE / script, options.out / "overhead.json", options.docs / name], check=True)
    return 0 if rows and all(row["time"] for row in rows) else 1


def run_rounds(
        suite: Suite, options: argparse.Namespace, selected: list[Benchmark], rows: list[dict], machine: str,
        began: float) -> list[dict]:
    """All rounds, or as many runs as the budget allows; the measurements are saved after each."""
    floor = build_floor(suite)
    save(options.out, machine, rows)
    first_round = 1 + max((row["round"] for row in rows), default=-1)
    for round_number in range(first_round, first_round + options.rounds):
        for benchmark in selected:
            tools = tools_for(suite, benchmark, floor, options.tool)
            turn = round_number % len(tools) if tools else 0
            for tool in tools[turn:] + tools[:turn]:
                if time.monotonic() - began > options.budget:
                    print(f"the time budget is spent in round {round_number}", flush=True)
                    return rows
                row = measure(suite, benchmark, tool, round_number, floor)
                rows.append(row)
                save(options.out, machine, rows)
                print(f"round {round_number} {benchmark.name} {tool}: {row['time'] or row['error']}", flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
