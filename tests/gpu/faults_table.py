"""What an abrupt end costs under gpuprof, nsys and torch.profiler: the same program, ended in the same ways.

Prints a Markdown table: for each way out and each tool, how many of the kernels that the program had completed are in what
the tool left behind, which time at the end is missing, and how the program ended if that is another way than without the
tool. With --docs the table replaces the one between the markers in RELIABILITY.md of that folder.

    python3 tests/gpu/faults_table.py --bin target/release --out DIR [--docs docs] [--nsys NSYS] [--nsys-libs DIR]

Several ways out run at the same time, so that it takes about two minutes: what is counted does not depend on time.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import oracles
from checks.endings import progress, worked_for
from harness import REPOSITORY, Mode, Run, Suite, find_nsys
from trace_report import Trace, Unreadable

WORK = 2.0
# Ways out at the same time.
JOBS = 4
# In place of a share when there is no file that can be read.
NOTHING = "nothing"
# Between these lines of RELIABILITY.md the table stands.
MARKERS = ("<!-- faults -->\n", "<!-- /faults -->\n")
# Way out -> (argument of the program, signal that the program itself is sent).
WAYS: dict[str, tuple[str, signal.Signals | None]] = {
    "exit": ("exit", None),
    "exception": ("exception", None),
    "_exit": ("_exit", None),
    "SIGTERM": ("wait", signal.SIGTERM),
    "SIGINT": ("wait", signal.SIGINT),
    "abort": ("abort", None),
    "segfault": ("segfault", None),
    "SIGKILL": ("wait", signal.SIGKILL),
    "SIGKILL, full load": ("storm", signal.SIGKILL),
}


def worker(name: str, process: subprocess.Popen) -> int:
    """The process that runs the program: the started one, or its descendant of that name under nsys."""
    waiting = [process.pid]
    while waiting:
        pid = waiting.pop()
        command = pathlib.Path(f"/proc/{pid}/cmdline")
        words = command.read_bytes().split(b"\0") if command.exists() else []
        if len(words) > 1 and words[1].endswith(name.encode()):
            return pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
        waiting += [int(child) for child in children.read_text().split()] if children.exists() else []
    return process.pid


# What the program said it had completed, and when: (unix nanoseconds, kernels).
Progress = list[tuple[int, int]]


def run(suite: Suite, name: str, way: str, prefix: list[str], mode: Mode, more: list[str]) -> tuple[Run, Progress]:
    """Runs the program under a tool to its end. Answers the run and what it had completed."""
    argument, sent = WAYS[way]
    file = suite.folder(f"{name}-progress") / "progress"
    command = [*prefix, *suite.python("endings.py", argument, "--progress", str(file), "--seconds", str(WORK), *more)]
    began = time.monotonic()
    process, folder = suite.start(name, command, mode, suite.nsys_environment() if prefix else None)
    if sent:
        while worked_for(progress(file)) < WORK and process.poll() is None and time.monotonic() < began + 120:
            time.sleep(0.02)
        os.kill(worker("endings.py", process), sent)
    finished = suite.finish(process, folder, began)
    return finished, progress(file)


def under_gpuprof(suite: Suite, name: str, way: str) -> tuple[Run, Progress, int | None]:
    traced, completed = run(suite, name, way, [], Mode.VARIABLE, [])
    files = traced.traces()
    try:
        return traced, completed, Trace(suite, files[0]).records("kernels") if files else None
    except Unreadable:
        return traced, completed, None


def under_nsys(suite: Suite, name: str, way: str) -> tuple[Run, Progress, int | None]:
    report = suite.folder(name) / "report"
    prefix = [suite.nsys or "nsys", "profile", "-t", "cuda", "-s", "none", "--cpuctxsw=none", "-f", "true", "-o", str(report)]
    traced, completed = run(suite, name, way, prefix, Mode.BARE, [])
    database = report.with_suffix(".sqlite")
    suite.run(
        f"{name}-export",
        [suite.nsys or "nsys", "export", "--type", "sqlite", "--force-overwrite=true", "-o", database, f"{report}.nsys-rep"],
        extra=suite.nsys_environment())
    return traced, completed, oracles.read_nsys(database).records["kernels"] if database.exists() else None


def under_torch(suite: Suite, name: str, way: str) -> tuple[Run, Progress, int | None]:
    file = suite.folder(name) / "trace.json"
    traced, completed = run(suite, name, way, [], Mode.BARE, ["--torch-trace", str(file)])
    try:
        events = json.loads(file.read_text())["traceEvents"]
    except (OSError, ValueError, KeyError):
        return traced, completed, None
    return traced, completed, sum(event.get("cat") == oracles.TORCH_CATEGORIES["kernels"] for event in events)


def cell(bare: Run, traced: Run, completed: Progress, kept: int | None) -> str:
    """Share of the completed kernels that is there, the time at the end that is missing, and how the program ended."""
    if kept is None or not completed:
        found = NOTHING
    else:
        (ended_at, all_kernels) = completed[-1]
        missing_from = next((at for at, kernels in completed if kernels > kept), ended_at)
        share = min(kept / max(all_kernels, 1), 1)
        found = "all" if kept >= all_kernels else f"{share:.1%}, last {(ended_at - missing_from) / 1e9:.2f} s missing"
    return found if traced.code == bare.code else f"{found}; {traced.ending()}"


def row(suite: Suite, way: str, tools: dict[str, Callable[[Suite, str, str], tuple[Run, Progress, int | None]]]) -> str:
    slug = "".join(letter if letter.isalnum() else "-" for letter in way)
    bare, _ = run(suite, f"{slug}-bare", way, [], Mode.BARE, [])
    cells = [cell(bare, *tool(suite, f"{slug}-{name}", way)) for name, tool in tools.items()]
    return f"| {way} | {bare.ending()} | {' | '.join(cells)} |"


def replace_between_markers(file: pathlib.Path, table: str) -> None:
    """Raises ValueError when the file has no such markers."""
    text = file.read_text()
    begin, end = (text.find(marker) for marker in MARKERS)
    if begin < 0 or end < begin:
        raise ValueError(f"{file} has no lines {MARKERS[0].strip()} and {MARKERS[1].strip()}")
    file.write_text(text[:begin] + MARKERS[0] + table + text[end:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=REPOSITORY / "target" / "release", metavar="DIR")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-faults-out"), metavar="DIR")
    parser.add_argument("--docs", type=pathlib.Path, metavar="DIR", help="folder of RELIABILITY.md, which gets the table")
    parser.add_argument("--jobs", type=int, default=JOBS, help="ways out at the same time")
    parser.add_argument("--nsys", default=find_nsys())
    parser.add_argument("--nsys-libs", metavar="DIR", default=os.environ.get("GPUPROF_NSYS_LIBS"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    suite = Suite(options.bin.resolve(), options.out, options.nsys, options.nsys_libs, "faults-log.txt")
    tools: dict[str, Callable[[Suite, str, str], tuple[Run, Progress, int | None]]] = {"gpuprof": under_gpuprof}
    if options.nsys:
        tools["nsys"] = under_nsys
    tools["torch.profiler"] = under_torch
    rows = [f"| the program ends by | bare | {' | '.join(tools)} |", "|---|---|" + "---|" * len(tools)]
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, options.jobs)) as pool:
        for line in pool.map(lambda way: row(suite, way, tools), WAYS):
            rows.append(line)
            print(line, flush=True)
    if "nsys" in tools and rows[2].split("|")[4].strip().startswith(NOTHING):
        print("nsys left nothing of a program that ended by itself: give --nsys-libs (README.md)", file=sys.stderr)
        return 1
    table = "\n".join(rows) + "\n"
    (options.out / "faults.md").write_text(table)
    if options.docs:
        replace_between_markers(options.docs / "RELIABILITY.md", table)
    print(f"written to {options.out / 'faults.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
