"""Overhead of tracing: no tool, CUPTI alone, gpuwhy, Nsight Systems and torch.profiler on the same programs, interleaved.

    python3 benches/gpu/overhead.py --bin target/release --out DIR [--merge DIR/overhead.json]

Absolute times drift by several percent over minutes (clocks, temperature, other processes), so each round runs all tools,
in a rotating order. The result is the median over the rounds of a tool's time divided by the time without a tool *of the
same round*. The programs time themselves; start-up and the end of the process are separate columns, because a trace that
is written in the background may delay them.

The default is seven rounds. The first --all-tools of them run all tools, the others omit `full` and nsys by nodes. A
round is started only if one as long as the longest up to now ends within --budget. If commands have a time limit, call
this again with --merge to continue with the next round.

Writes overhead.json (measured.py) and overhead.md into --out after each run; publish.py puts the figures into the
documentation.
The tools run with their defaults: gpuwhy records the nodes of CUDA graphs, and nsys records a graph as one operation. `floor` is CUPTI
recording the same kinds as gpuwhy, with the records discarded (floor.cpp): the lower bound for any tool that records these kinds.
`floor-nodes`, `gpuwhy-nodes` and `nsys-node` record the nodes of graphs.
Under CUPTI a launch takes either 4 us or 6 in a given process, with any tool (docs/design/overhead.md), so each tool runs `launch` three
times in a round, alternating with the others, and the median one counts.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "gpu"))

import machine as machines  # noqa: E402
from harness import REPOSITORY, Mode, Run, Suite, find_nsys  # noqa: E402
from measured import Measured, NotMergeable  # noqa: E402
from trace_report import Unreadable, single  # noqa: E402

# Longest run of one program under one tool, seconds: nsys takes up to 25 for one of 2 s.
RUN_LIMIT = 90.0
# Variables of libprof.so for each variant of gpuwhy. Others: `VARIABLE=VALUE gpuwhy try --cost=light -- PROGRAM`.
VARIANTS = {
    "gpuwhy": {},
    "gpuwhy-monitor": {"GPUWHY_MODE": "monitor"},
    "gpuwhy-full": {"GPUWHY_MODE": "full"},
    "gpuwhy-nodes": {"GPUWHY_CUDA_GRAPH_TRACE": "node"},
    "gpuwhy-memory": {"GPUWHY_CUDA_MEMORY_USAGE": "on"},
}
# Variables of libfloor.so for each variant of CUPTI alone.
FLOORS = {
    "floor": {},
    "floor-nodes": {"FLOOR_RECORDS": "nodes"},
    "floor-attached": {"FLOOR_RECORDS": "nothing"},
    "floor-flushed": {"FLOOR_FLUSH_MS": "100"},
    "floor-subscribed": {"FLOOR_SUBSCRIBES": "1"},
}
# Tools with targets and their alternatives, in every round; and the other tools, in the first rounds.
CORE = ("none", "floor", "floor-nodes", "gpuwhy", "gpuwhy-nodes", "gpuwhy-monitor", "nsys", "torch")
MORE = ("gpuwhy-full", "nsys-node")
TOOLS = (*CORE, *MORE, "gpuwhy-memory", "floor-attached", "floor-flushed", "floor-subscribed")
# Tools that differ from another one only for CUDA graphs.
OF_GRAPHS = ("floor-nodes", "gpuwhy-nodes", "nsys-node")
HERE = pathlib.Path(__file__).resolve().parent
NSYS = ["-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "-f", "true", "-o", "report"]


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A program that prints its time, or that of each of its parts."""

    name: str
    command: list[str]
    figures: dict[str, str]  # name: regular expression with the number in group 1; the last one is printed last
    unit: str
    is_torch: bool = False
    graphs: bool = False  # recording the nodes of CUDA graphs makes a difference
    times: int = 1  # number of runs per tool and round; the median counts


def benchmarks(suite: Suite) -> list[Benchmark]:
    """Programs, sized so that a round takes two and a half minutes on an H200, mostly start-up and nsys's end."""

    def small(name: str, unit: str, *numbers: str, graphs: bool = False, times: int = 1) -> Benchmark:
        command = [str(suite.microbench), name, *numbers]
        return Benchmark(name, command, {name: r"time_per_operation_ns=([\d.]+)"}, unit, graphs=graphs, times=times)

    models = {model: rf'"model": "{model}", "ms_per_step": ([\d.]+)' for model in ("mlp", "resnet", "gpt")}
    return [
        # 100,000 per repetition: this one gives the time of a gpuwhy thread per kernel.
        small("launch", "ns/kernel", "100000", times=3),
        small("graph", "ns/node", "1000", "100", graphs=True),
        small("copy", "ns/copy", "50000"),
        small("sm", "ns/kernel", "5000"),
        small("threads", "ns/kernel", "1", graphs=True),
        Benchmark("training", [sys.executable, str(HERE / "training.py")], models, "ms/step", is_torch=True),
    ]


def build_floor(suite: Suite) -> pathlib.Path | None:
    """Builds libfloor.so; None, with a printed reason, if that fails."""
    try:
        return suite.compile_injection(HERE / "floor.cpp")
    except (FileNotFoundError, RuntimeError) as error:
        print(f"floor: left out, {error}", flush=True)
        return None


def tools_for(benchmark: Benchmark, there: list[str]) -> list[str]:
    """Tools that are meaningful for the program, in a fixed order."""
    only_for = {"torch": benchmark.is_torch} | dict.fromkeys(OF_GRAPHS, benchmark.graphs)
    return [tool for tool in TOOLS if tool in there and only_for.get(tool, True)]


def own_account(suite: Suite, run: Run) -> dict:
    """gpuwhy's data about its own run: its threads' share of a core, the rate of kernels, the losses, and the CUPTI that it used."""
    trace = single(suite, run)
    seconds = trace.report["cost"]["observed_ns"] / 1e9
    return {
        "threads_share": trace.report["cost"]["threads_cpu_ns"] / 1e9 / seconds,
        "kernels_per_s": trace.records("kernels") / seconds, "lost": sum(trace.losses().values()),
        "cupti": trace.report["process"]["cupti_version"]}


def measure(suite: Suite, benchmark: Benchmark, tool: str, round_number: int, floor: pathlib.Path | None) -> list[dict]:
    """One run: a row for each figure of the program.

    `time` is None when the program failed or did not print it; `error` describes its end. A program with several parts
    also has a row with its own name, marked `whole`, with the time of the process, seconds.
    """
    command, mode, extra = benchmark.command, Mode.BARE, {}
    if tool in VARIANTS:
        mode, extra = Mode.VARIABLE, VARIANTS[tool]
    elif tool in FLOORS:
        extra = {"CUDA_INJECTION64_PATH": str(floor), **FLOORS[tool]}
    elif tool == "torch":
        command = [*command, "--torch-trace", "torch-trace.json"]
    elif tool.startswith("nsys"):
        level = ["--cuda-graph-trace=node"] if tool == "nsys-node" else []
        extra = suite.nsys_environment()
        command = [suite.nsys, "profile", *NSYS, *level, *command]
    measure_process = [sys.executable, HERE / "measure_process.py", "used.json", "|".join(benchmark.figures.values())]
    run = suite.run(f"{benchmark.name}-{tool}", [*measure_process, *command], mode, extra, limit=RUN_LIMIT)
    rows = rows_of(suite, benchmark, tool, run)
    shutil.rmtree(run.folder, ignore_errors=True)
    return [{**row, "tool": tool, "round": round_number} for row in rows]


def rows_of(suite: Suite, benchmark: Benchmark, tool: str, run: Run) -> list[dict]:
    """Rows of one run, without tool and round."""
    # The exit code of nsys may be a failure to convert the result; the program's figure is still valid.
    succeeded = run.code == 0 or (tool.startswith("nsys") and run.code is not None)
    found = {name: re.search(pattern, run.stdout) if succeeded else None for name, pattern in benchmark.figures.items()}
    rows = [
        {"benchmark": name, "unit": benchmark.unit, "time": float(match[1]) if match else None} for name, match in found.items()]
    used_file = run.folder / "used.json"
    used = json.loads(used_file.read_text()) if used_file.exists() else {}
    whole = {"benchmark": benchmark.name, "unit": "s", "whole": True, "time": used.get("wall_s") if all(found.values()) else None}
    process = whole if len(rows) > 1 else rows[0]
    files = [*run.traces(), *run.folder.glob("report.nsys-rep"), *run.folder.glob("torch-trace.json")]
    process |= {name: used.get(name) for name in (
        "wall_s", "all_ended_s", "after_last_line_s", "cpu_s", "peak_mib", "orphans", "killed")}
    process["trace_bytes"] = sum(file.stat().st_size for file in files)
    rows = [*rows, process] if process is whole else rows
    lines = run.stderr.strip().splitlines()
    for row in rows:
        if row["time"] is None:
            row["error"] = f"{run.ending()}: {lines[-1][:200] if lines else 'no figure in its output'}"
    if tool == "gpuwhy" and process["time"] is not None:
        try:
            process |= own_account(suite, run)
        except Unreadable as error:
            process |= {"time": None, "error": str(error)}
    return rows


def middle(runs: list[list[dict]]) -> list[dict]:
    """The run with the median time, or a failed run if there is one."""
    failed = [rows for rows in runs if any(row["time"] is None for row in rows)]
    return failed[0] if failed else sorted(runs, key=lambda rows: rows[0]["time"])[len(runs) // 2]


def measure_round(
        suite: Suite, selected: list[Benchmark], there: list[str], number: int, floor: pathlib.Path | None, out: pathlib.Path,
        measured: Measured) -> None:
    """Measures one complete round, regardless of the budget: a ratio needs both of its runs."""
    began = time.monotonic()
    for benchmark in selected:
        tools = tools_for(benchmark, there)
        turn = number % len(tools) if tools else 0
        order = tools[turn:] + tools[:turn]
        runs = [(tool, measure(suite, benchmark, tool, number, floor)) for _ in range(benchmark.times) for tool in order]
        for tool in order:
            rows = middle([rows for by, rows in runs if by == tool])
            measured.measurements.extend(rows)
            measured.save(out)
            for row in rows:
                print(f"round {number} {row['benchmark']} {tool}: {row['time'] or row['error']}", flush=True)
    measured.rounds.append({"round": number, "seconds": round(time.monotonic() - began, 1), "tools": there})
    measured.save(out)
    print(f"round {number}: {measured.rounds[-1]['seconds']} s", flush=True)


def expected_seconds(measured: Measured, there: list[str]) -> float:
    """Maximum duration of a round, from earlier rounds with the same tools, else with more tools; 0 without any."""
    same = [entry["seconds"] for entry in measured.rounds if set(there) == set(entry["tools"])]
    more = [entry["seconds"] for entry in measured.rounds if set(there) < set(entry["tools"])]
    return max(same or more, default=0.0)


def measure_rounds(suite: Suite, options: argparse.Namespace, measured: Measured, end: float) -> None:
    """Measures the missing rounds, as far as the budget allows."""
    floor = build_floor(suite)
    missing = {*(FLOORS if not floor else ()), *(("nsys", "nsys-node") if not suite.nsys else ())}
    selected = [benchmark for benchmark in benchmarks(suite) if not options.only or benchmark.name in options.only]
    for number in range(measured.next_round(), options.rounds):
        wanted = options.tool or (CORE + MORE if number < options.all_tools else CORE)
        there = [tool for tool in TOOLS if tool in wanted and tool not in missing]
        if time.monotonic() + expected_seconds(measured, there) > end:
            print(f"round {number} would not end within the budget: call again with --merge {options.out / 'overhead.json'}", flush=True)
            return
        measure_round(suite, selected, there, number, floor, options.out, measured)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=REPOSITORY / "target" / "release", help="folder with libprof.so")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--merge", type=pathlib.Path, metavar="JSON", help="go on behind the whole rounds of this file, if it exists")
    parser.add_argument("--rounds", type=int, default=7, help="wanted in all, with those of --merge (default 7)")
    parser.add_argument("--all-tools", type=int, default=3, metavar="N",
                        help=f"run {', '.join(MORE)} in the first N rounds (default 3)")
    parser.add_argument("--budget", type=float, default=3600.0, metavar="SECONDS", help="begin no round that would end after this time")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="launch, graph, copy, sm, threads, training")
    parser.add_argument("--tool", action="append", default=[], metavar="NAME", choices=TOOLS, help=", ".join(TOOLS))
    parser.add_argument("--microbench", type=pathlib.Path, help="built microbench (default: built here with nvcc)")
    parser.add_argument("--nsys", default=find_nsys())
    parser.add_argument("--nsys-libs", metavar="DIR", default=os.environ.get("GPUWHY_NSYS_LIBS"),
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
    measured = Measured(machines.describe(suite))
    if options.merge and options.merge.exists():
        try:
            measured.merge(options.merge)
        except NotMergeable as error:
            print(error, file=sys.stderr)
            return 2
    measured.begin_session()
    measured.save(options.out)
    measure_rounds(suite, options, measured, began + options.budget)
    shutil.rmtree(suite.scratch, ignore_errors=True)
    print("\n" + (options.out / "overhead.md").read_text())
    return 0 if measured.measurements and all(row["time"] for row in measured.measurements) else 1


if __name__ == "__main__":
    sys.exit(main())
