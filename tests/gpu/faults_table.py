"""What an abrupt end costs under gpuprof, nsys and torch.profiler: the same program, ended in the same ways.

Prints a Markdown table for docs/RELIABILITY.md: for each way out and each tool, whether the program's exit status is
that of the bare run, and how many of the kernels that it had completed are in what the tool left behind.

    python3 tests/gpu/faults_table.py --bin target/release --out DIR [--nsys NSYS] [--nsys-libs DIR]
"""

from __future__ import annotations

import argparse
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


def run(suite: Suite, name: str, way: str, prefix: list[str], mode: Mode, more: list[str]) -> tuple[Run, int]:
    """Runs the program under a tool to its end. Answers the run and how many kernels it had completed."""
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
    lines = progress(file)
    return finished, lines[-1][1] if lines else 0


def under_gpuprof(suite: Suite, name: str, way: str) -> tuple[Run, int, int | None]:
    traced, completed = run(suite, name, way, [], Mode.VARIABLE, [])
    files = traced.traces()
    try:
        return traced, completed, Trace(suite, files[0]).records("kernels") if files else None
    except Unreadable:
        return traced, completed, None


def under_nsys(suite: Suite, name: str, way: str) -> tuple[Run, int, int | None]:
    report = suite.folder(name) / "report"
    prefix = [suite.nsys or "nsys", "profile", "-t", "cuda", "-s", "none", "--cpuctxsw=none", "-f", "true", "-o", str(report)]
    traced, completed = run(suite, name, way, prefix, Mode.BARE, [])
    database = report.with_suffix(".sqlite")
    suite.run(
        f"{name}-export",
        [suite.nsys or "nsys", "export", "--type", "sqlite", "--force-overwrite=true", "-o", database, f"{report}.nsys-rep"],
        extra=suite.nsys_environment())
    return traced, completed, oracles.read_nsys(database).records["kernels"] if database.exists() else None


def under_torch(suite: Suite, name: str, way: str) -> tuple[Run, int, int | None]:
    file = suite.folder(name) / "trace.json"
    traced, completed = run(suite, name, way, [], Mode.BARE, ["--torch-trace", str(file)])
    try:
        events = json.loads(file.read_text())["traceEvents"]
    except (OSError, ValueError, KeyError):
        return traced, completed, None
    return traced, completed, sum(event.get("cat") == oracles.TORCH_CATEGORIES["kernels"] for event in events)


def cell(bare: Run, traced: Run, completed: int, kept: int | None) -> str:
    """Share of the completed kernels that is there, and how the program ended if that is another way than bare."""
    found = "nothing" if kept is None else f"{min(kept / max(completed, 1), 1):.1%}"
    return found if traced.code == bare.code else f"{found}, {traced.ending()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=REPOSITORY / "target" / "release", metavar="DIR")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-faults-out"), metavar="DIR")
    parser.add_argument("--nsys", default=find_nsys())
    parser.add_argument("--nsys-libs", metavar="DIR", default=os.environ.get("GPUPROF_NSYS_LIBS"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    suite = Suite(options.bin.resolve(), options.out, options.nsys, options.nsys_libs, "faults-log.txt")
    tools: dict[str, Callable[[Suite, str, str], tuple[Run, int, int | None]]] = {"gpuprof": under_gpuprof}
    if options.nsys:
        tools["nsys"] = under_nsys
    tools["torch.profiler"] = under_torch
    rows = [f"| the program ends by | bare | {' | '.join(tools)} |", "|---|---|" + "---|" * len(tools)]
    for way in WAYS:
        slug = "".join(letter if letter.isalnum() else "-" for letter in way)
        bare, _ = run(suite, f"{slug}-bare", way, [], Mode.BARE, [])
        cells = [cell(bare, *tool(suite, f"{slug}-{name}", way)) for name, tool in tools.items()]
        rows.append(f"| {way} | {bare.ending()} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    (options.out / "faults.md").write_text("\n".join(rows) + "\n")
    print(f"written to {options.out / 'faults.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
