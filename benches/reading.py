#!/usr/bin/env python3
"""Time and memory of reading one recorded run, by gpuwhy and by other tools, on this machine, interleaved.

    benches/reading.py                          # a generated run of 1 million events
    benches/reading.py --events 100000000 --only gpuwhy
    benches/reading.py --trace TRACE --rounds 5 --json FILE

Each tool reads its own format, written by `gpuwhy export` from the same trace, and answers the same question: the time of
each kernel. Prints medians (least to most) in seconds, the largest peak of resident memory in MiB, and the size of what
is read. A tool that is not installed is SKIPPED:

* `nsys stats`: nsys in PATH, or its path in NSYS
* HolisticTraceAnalysis: the Python packages of tests/export/hta/requirements.txt
* Perfetto: trace_processor_shell in PATH
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GPUWHY = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"), "release", "gpuwhy")
SQL = "SELECT name, count(*), sum(duration_ns) FROM kernels GROUP BY name"
PERFETTO_SQL = "SELECT name, count(*), sum(dur) FROM slice WHERE category = 'kernel' GROUP BY name;"
HTA = """
import logging, sys, warnings
warnings.filterwarnings("ignore"); logging.disable(logging.WARNING)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
"""


def jobs(trace: pathlib.Path, folder: pathlib.Path, only: str) -> list[tuple[str, list, pathlib.Path]]:
    """Name, command and input of each reading. Writes the inputs of other tools."""
    page = folder / "page.html"
    found = [
        ("gpuwhy report", [GPUWHY, "report", trace], trace),
        ("gpuwhy report --recompute", [GPUWHY, "report", "--recompute", trace], trace),
        ("gpuwhy query stats", [GPUWHY, "query", "stats", trace], trace),
        ("gpuwhy query SQL", [GPUWHY, "query", SQL, trace], trace),
        ("gpuwhy report --html", [GPUWHY, "report", "--html", page, trace], trace),
    ]
    if only == "gpuwhy":
        return found

    def exported(form: str, name: str) -> pathlib.Path:
        path = folder / name
        if not path.exists():
            subprocess.run([GPUWHY, "export", "--quiet", "--to", form, "--output", path, trace], check=True)
        return path

    nsys = os.environ.get("NSYS") or shutil.which("nsys")
    if nsys:
        path = exported("sqlite", "trace.sqlite")
        found.append(("nsys stats", [nsys, "stats", "--force-export=false", path], path))
    else:
        print("SKIPPED: nsys is not in PATH or NSYS", file=sys.stderr)
    if subprocess.run([sys.executable, "-c", "import hta.trace_analysis"], capture_output=True).returncode == 0:
        path = exported("chrome", "trace.json")
        found.append(("HTA: kernels, idle time", [sys.executable, "-c", HTA, path], path))
    else:
        print("SKIPPED: HolisticTraceAnalysis is not installed", file=sys.stderr)
    if shell := shutil.which("trace_processor_shell"):
        path = exported("perfetto", "trace.pftrace")
        query = folder / "query.sql"
        query.write_text(PERFETTO_SQL)
        found.append(("Perfetto SQL", [shell, "-q", query, path], path))
    else:
        print("SKIPPED: trace_processor_shell is not in PATH", file=sys.stderr)
    return found


def measured(command: list, folder: pathlib.Path) -> tuple[float, float]:
    """Seconds and peak memory in MiB of a command. Ends this program if the command fails."""
    (folder / "page.html").unlink(missing_ok=True)
    with open(folder / "output", "w+b") as output:
        begun = time.monotonic()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        # The exit code of a query is 1 if one of its tables has no rows.
        if process.returncode not in ((0, 1) if "query" in command else (0,)):
            output.seek(0)
            sys.exit(f"{' '.join(map(str, command))}\n{output.read().decode(errors='replace')[-2000:]}")
    return seconds, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=pathlib.Path, help="read this trace instead of a generated one")
    parser.add_argument("--events", type=int, default=1_000_000, help="events of the generated run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["gpuwhy", "all"], default="all")
    parser.add_argument("--json", type=pathlib.Path, help="also write every time here")
    options = parser.parse_args()
    if not GPUWHY.exists():
        sys.exit(f"{GPUWHY} is missing: cargo build --release")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        trace = options.trace.resolve() if options.trace else folder / "run.gpuwhy"
        if not options.trace:
            generate = ["cargo", "bench", "--quiet", "-p", "gpuwhy", "--bench", "long_trace", "--", str(options.events), trace]
            subprocess.run(generate, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        readings = jobs(trace, folder, options.only)
        times: dict[str, list] = {name: [] for name, _, _ in readings}
        for round in range(options.rounds):
            for name, command, _ in readings[round % len(readings) :] + readings[: round % len(readings)]:
                times[name].append(measured(command, folder))
        print("| reading | s | MiB | input, MB |\n|---|---|---|---|")
        for name, _, path in readings:
            seconds = sorted(seconds for seconds, _ in times[name])
            memory = max(memory for _, memory in times[name])
            middle = statistics.median(seconds)
            print(f"| {name} | {middle:.2f} ({seconds[0]:.2f} .. {seconds[-1]:.2f}) | {memory:.0f} | {path.stat().st_size / 1e6:.1f} |")
        if options.json:
            options.json.write_text(json.dumps(times, indent=1))


if __name__ == "__main__":
    main()
