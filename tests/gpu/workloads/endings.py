"""A CUDA program that ends in a chosen way, and writes its progress to a file.

Every few milliseconds it waits for the device and appends one line, `unix_nanoseconds kernels_completed`, to the
progress file. The line is written with one `write` call, so it is there even if the process is killed right after it. A
trace of this process must contain all the kernels that a line old enough reports. Its process id is in the file of that
name and `.pid`, for a caller that started it through another program.

The manner is one of: wait (until it is killed), storm (the same under full load: launches without a pause), exit,
_exit, segfault, abort, exception, fork (a child forked in the middle ends as a multiprocessing worker does, then exit),
handlers (exit, and an exit handler of Python uses the device once more). `--torch-trace FILE` runs it under
torch.profiler, to compare what that keeps.
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import multiprocessing
import os
import pathlib
import sys
import time

import torch

KERNELS_PER_ROUND = 50
KERNELS_PER_STORM = 5_000


def end(manner: str) -> int:
    """Ends the process, or returns the exit code."""
    if manner == "_exit":
        os._exit(4)
    if manner == "segfault":
        ctypes.string_at(0)
    if manner == "abort":
        os.abort()
    if manner == "exception":
        raise RuntimeError("the end that was asked for")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manner", choices=[
        "wait", "storm", "exit", "_exit", "segfault", "abort", "exception", "fork", "handlers"])
    parser.add_argument("--progress", required=True, help="file to append to")
    parser.add_argument("--seconds", type=float, default=2.0, help="work this long, then end (wait: at most ten times this long)")
    parser.add_argument("--torch-trace", metavar="FILE", help="profile the work with torch.profiler, and write its trace")
    options = parser.parse_args()
    pathlib.Path(f"{options.progress}.pid").write_text(str(os.getpid()))
    if options.torch_trace:
        from torch.profiler import ProfilerActivity, profile

        # Exported by the handler, which is called after an exception too.
        with profile(
                activities=[ProfilerActivity.CUDA],
                on_trace_ready=lambda profiler: profiler.export_chrome_trace(options.torch_trace)):
            return work(options)
    return work(options)


def work(options: argparse.Namespace) -> int:
    storm = options.manner == "storm"
    waits = options.manner in ("wait", "storm")
    launches = KERNELS_PER_STORM if storm else KERNELS_PER_ROUND
    values = torch.ones(1 << 16, device="cuda")
    torch.cuda.synchronize()
    # Only kernels launched by this loop are reported: those that built the tensor are extra.
    completed = 0
    progress = os.open(options.progress, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def one_round() -> None:
        nonlocal completed
        for _ in range(launches):
            values.mul_(1.0)
        torch.cuda.synchronize()
        completed += launches
        os.write(progress, f"{time.time_ns()} {completed}\n".encode())

    began = time.monotonic()
    child = None
    while time.monotonic() < began + options.seconds * (10 if waits else 1):
        one_round()
        if options.manner == "fork" and child is None and time.monotonic() > began + options.seconds / 2:
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.1,))
            child.start()
        if not storm:
            time.sleep(0.001)
    if child is not None:
        child.join()
        print("child ended with", child.exitcode)
    if options.manner == "handlers":
        atexit.register(one_round)
    print("ending by", options.manner, flush=True)
    return end(options.manner)


if __name__ == "__main__":
    sys.exit(main())
