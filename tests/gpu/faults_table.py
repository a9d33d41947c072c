"""Losses by faults under gpuwhy, nsys and torch.profiler: the same program with the same ends under each.

Prints a Markdown table: for each fault and each tool, the share of the program's completed kernels in the tool's
result, the time missing at the end, and the program's ending if it differs from that without the tool. With --docs the
table replaces the one between the markers of that file (tests/reliability/faults.md).

    python3 tests/gpu/faults_table.py --bin target/release --out DIR [--docs FILE] [--nsys NSYS] [--nsys-libs DIR]

Several faults are tried at the same time, so it takes two or three minutes: the counts do not depend on time. The
output of a tool is not compared, only its result.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import oracles
from checks.endings import progress, worked_for
from harness import REPOSITORY, Mode, Run, Suite, find_nsys
from trace_report import Trace, Unreadable

# Work before the fault, seconds.
WORK = 2.0
# Maximum run of one program under one tool, seconds. Every run here takes less than half of it.
LIMIT = 60.0
# Number of faults tried at the same time.
JOBS = 6
# Size of the full disk, kilobytes: a small part of any of the traces.
DISK_KB = 64
# Printed in place of a share if there is no readable file.
NOTHING = "nothing"
# Lines of the page around the table.
MARKERS = ("<!-- faults -->\n", "<!-- /faults -->\n")


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    manner: str  # argument of the program
    sent: signal.Signals | None = None  # signal to the program itself, once it has worked
    full_disk: bool = False  # for the folder in which the tool leaves its result

    def slug(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.name)


FAULTS = [
    Fault("exit", "exit"),
    Fault("exit, using the device in an exit handler", "handlers"),
    Fault("exit, a child forked while CUDA runs", "fork"),
    Fault("exit, results on a full disk", "exit", full_disk=True),
    Fault("exception", "exception"),
    Fault("_exit", "_exit"),
    Fault("SIGTERM", "wait", signal.SIGTERM),
    Fault("SIGINT", "wait", signal.SIGINT),
    Fault("abort", "abort"),
    Fault("segfault", "segfault"),
    Fault("SIGKILL", "wait", signal.SIGKILL),
    Fault("SIGKILL, full load", "storm", signal.SIGKILL),
]

# Completed kernels as the program reported them: (unix nanoseconds, kernels).
Progress = list[tuple[int, int]]
# The run, its progress, and the number of kernels that the tool kept: None without a readable file.
Outcome = tuple[Run, Progress, int | None]
# Tries a fault under a tool, which leaves its result in the folder.
Tool = Callable[[Suite, str, Fault, pathlib.Path], Outcome]


class CannotTry(Exception):
    """The host does not allow this fault; the message says why."""


@contextlib.contextmanager
def results(suite: Suite, name: str, full_disk: bool) -> Iterator[pathlib.Path]:
    """The folder for a tool's result. A full disk is a file system of a few kilobytes.

    Raises CannotTry if it cannot be mounted (this takes root), or is larger than requested.
    """
    folder = suite.folder(name)
    if not full_disk:
        yield folder
        return
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k", "tmpfs", folder], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        raise CannotTry(f"mount: {mounted.stderr.strip()}")
    try:
        filling = folder / "filling"
        with contextlib.suppress(OSError), open(filling, "wb", buffering=0) as file:
            for _ in range(2):
                file.write(bytes(DISK_KB << 10))
            raise CannotTry("the file system that was mounted has no limit")
        filling.unlink()
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], capture_output=True, check=False)


def run(
        suite: Suite, name: str, fault: Fault, prefix: list[str], extra: dict[str, str],
        more: list[str]) -> tuple[Run, Progress]:
    """Runs the program to its end. Returns the run and the kernels that it had completed."""
    file = suite.folder(f"{name}-progress") / "progress"
    program = suite.python("endings.py", fault.manner, "--progress", str(file), "--seconds", str(WORK), *more)
    began = time.monotonic()
    process, folder = suite.start(name, [*prefix, *program], Mode.BARE, extra)
    if fault.sent:
        while worked_for(progress(file)) < WORK and process.poll() is None and time.monotonic() < began + LIMIT:
            time.sleep(0.02)
        # Not the process that was started: under nsys that is nsys.
        with contextlib.suppress(OSError):
            os.kill(int(file.with_name("progress.pid").read_text()), fault.sent)
    finished = suite.finish(process, folder, began, LIMIT)
    return finished, progress(file)


def under_gpuwhy(suite: Suite, name: str, fault: Fault, folder: pathlib.Path) -> Outcome:
    file = folder / "trace.gpuwhy"
    environment = {
        "CUDA_INJECTION64_PATH": str(suite.library), "GPUWHY_REPORT": "off", "GPUWHY_OUTPUT": str(file)}
    traced, completed = run(suite, name, fault, [], environment, [])
    try:
        return traced, completed, Trace(suite, file).records("kernels") if file.exists() else None
    except Unreadable:
        return traced, completed, None


def under_nsys(suite: Suite, name: str, fault: Fault, folder: pathlib.Path) -> Outcome:
    nsys, report = suite.nsys or "nsys", folder / "report"
    prefix = [nsys, "profile", "-t", "cuda", "-s", "none", "--cpuctxsw=none", "-f", "true", "-o", str(report)]
    traced, completed = run(suite, name, fault, prefix, suite.nsys_environment(), [])
    # In the folder of the results the converted file would meet the same full disk.
    database = suite.folder(f"{name}-export") / "report.sqlite"
    suite.run(
        f"{name}-export", [nsys, "export", "--type", "sqlite", "--force-overwrite=true", "-o", database, f"{report}.nsys-rep"],
        extra=suite.nsys_environment(), limit=LIMIT)
    try:
        if not database.exists():
            return traced, completed, None
        # The tool's diagnostics go to the suite's log, where a reader can find a message about the loss.
        with contextlib.closing(sqlite3.connect(database)) as connection, contextlib.suppress(sqlite3.OperationalError):
            for (text,) in connection.execute("SELECT DISTINCT text FROM DIAGNOSTIC_EVENT"):
                suite.log(f"{name} says: {text}")
        return traced, completed, oracles.read_nsys(database).records["kernels"]
    except sqlite3.Error:
        return traced, completed, None


def under_torch(suite: Suite, name: str, fault: Fault, folder: pathlib.Path) -> Outcome:
    file = folder / "trace.json"
    traced, completed = run(suite, name, fault, [], {}, ["--torch-trace", str(file)])
    try:
        events = json.loads(file.read_text())["traceEvents"]
    except (OSError, ValueError, KeyError):
        return traced, completed, None
    return traced, completed, sum(event.get("cat") == oracles.TORCH_CATEGORIES["kernels"] for event in events)


def cell(bare: Run, outcome: Outcome) -> str:
    """Share of the completed kernels that is present, the time missing at the end, and the program's ending."""
    traced, completed, kept = outcome
    if not completed:
        found = f"{NOTHING}, the program did no work"
    elif kept is None:
        found = NOTHING
    else:
        ended_at, all_kernels = completed[-1]
        missing_from = next((at for at, kernels in completed if kernels > kept), ended_at)
        missing = f"{kept / all_kernels:.1%}, last {(ended_at - missing_from) / 1e9:.2f} s missing"
        found = "all" if kept >= all_kernels else missing
    return found if same_end(bare, traced) else f"{found}; {traced.ending()}"


def same_end(bare: Run, traced: Run) -> bool:
    """True if the program ended in the same way. A tool that started it reports a deadly signal as shells do, plus 128.
    """
    return traced.code == bare.code or (bare.code is not None and bare.code < 0 and traced.code == 128 - bare.code)


def row(suite: Suite, fault: Fault, tools: dict[str, Tool]) -> str:
    bare, _ = run(suite, f"{fault.slug()}-bare", fault, [], {}, [])
    cells = []
    for tool, tried in tools.items():
        name = f"{fault.slug()}-{tool}"
        try:
            with results(suite, f"{name}-results", fault.full_disk) as folder:
                cells.append(cell(bare, tried(suite, name, fault, folder)))
        except CannotTry as why:
            cells.append(f"not tried ({why})")
    return f"| {fault.name} | {bare.ending()} | {' | '.join(cells)} |"


def versions(suite: Suite) -> str:
    """The comparison in one sentence."""
    asked = {
        "": ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        "nsys": [suite.nsys or "nsys", "--version"],
        "PyTorch": [sys.executable, "-c", "import torch; print(torch.__version__)"]}
    said = []
    for name, command in asked.items():
        with contextlib.suppress(OSError):
            lines = suite.run("version", command, limit=LIMIT).stdout.strip().splitlines()
            said.append(f"{name} {lines[0].strip() if lines else 'of an unknown version'}".strip())
    return f"Seen on: {'; '.join(said)}.\n"


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
    parser.add_argument("--docs", type=pathlib.Path, metavar="FILE", help="a page with markers that gets the table")
    parser.add_argument("--jobs", type=int, default=JOBS, help="faults at the same time")
    parser.add_argument("--nsys", default=find_nsys())
    parser.add_argument("--nsys-libs", metavar="DIR", default=os.environ.get("GPUWHY_NSYS_LIBS"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    suite = Suite(options.bin.resolve(), options.out, options.nsys, options.nsys_libs, log_name="faults-log.txt")
    if not suite.library.exists() or not suite.gpuwhy.exists():
        print(f"{options.bin} lacks gpuwhy or libprof.so: cargo build --release --workspace, or --bin", file=sys.stderr)
        return 2
    tools: dict[str, Tool] = {"gpuwhy": under_gpuwhy}
    if options.nsys:
        tools["nsys"] = under_nsys
    tools["torch.profiler"] = under_torch
    rows = [f"| the program ends by | bare | {' | '.join(tools)} |", "|---|---|" + "---|" * len(tools)]
    table = options.out / "faults.md"
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, options.jobs)) as pool:
        for line in pool.map(lambda fault: row(suite, fault, tools), FAULTS):
            rows.append(line)
            print(line, flush=True)
            # Row by row: completed rows stay if the run is cut off.
            table.write_text("\n".join(rows) + "\n")
    # A tool that keeps nothing of an undisturbed run was not set up: then the table shows nothing about faults.
    undisturbed = [text.strip() for text in rows[2].strip("|").split("|")[2:]]
    if idle := [tool for tool, text in zip(tools, undisturbed, strict=True) if text.startswith(NOTHING)]:
        print(f"{', '.join(idle)} left nothing of a program that ended by itself: no comparison "
              "(nsys may need --nsys-libs, README.md)", file=sys.stderr)
        return 1
    text = f"{table.read_text()}\n{versions(suite)}"
    table.write_text(text)
    if options.docs:
        replace_between_markers(options.docs, text)
    print(f"written to {table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
