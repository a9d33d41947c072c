"""Runs a command and records its resource usage: the outermost process of a measurement.

    python3 measure_process.py FILE PATTERN COMMAND...

Passes stdout on line by line and records the time of the last line that matches PATTERN (a regular expression): the time
from there to the end of the command is what a tool needs to complete its result. Lines of the tool do not count.

A tool may start the program through a daemon, as nsys does: that one is an orphan, and its time would be lost. So this
process adopts orphans (PR_SET_CHILD_SUBREAPER) and waits for every descendant before it sums up, at most PATIENCE
seconds after the end of the command. The remaining ones are then killed and counted.

FILE gets a JSON object: `code`; `wall_s` to the end of the command and `all_ended_s` to that of its last descendant;
`after_last_line_s`; `cpu_s` of all descendants; `peak_mib` of the largest single process, `orphans` adopted and `killed`.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time

# From linux/prctl.h.
PR_SET_CHILD_SUBREAPER = 36
# Seconds that descendants may outlive the command. nsys's daemon ends within one second.
PATIENCE = 5.0
POLL_INTERVAL = 0.02


def adopt_orphans() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def children() -> list[int]:
    """Processes whose parent is this one now."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may contain any character; the parent is the second field after it.
            fields = status.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.append(int(status.parent.name))
    return found


def reap_orphans(patience: float) -> tuple[int, int]:
    """Waits for the remaining descendants; returns their number and the number that had to be killed."""
    orphans, killed, deadline = 0, set(), time.monotonic() + patience
    while True:
        try:
            process, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return orphans, len(killed)
        if process:
            orphans += 1
        elif time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL)
        else:
            # The children of a killed process become children of this one.
            for child in children():
                os.kill(child, signal.SIGKILL)
                killed.add(child)
            time.sleep(POLL_INTERVAL)


def main() -> int:
    file, pattern, command = pathlib.Path(sys.argv[1]), re.compile(sys.argv[2].encode()), sys.argv[3:]
    adopt_orphans()
    began = time.monotonic()
    last_line = None
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    # Ends when every process that holds the pipe has closed it, daemons included, so that no output is lost.
    for line in process.stdout:
        if pattern.search(line):
            last_line = time.monotonic()
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    code = process.wait()
    ended = time.monotonic()
    orphans, killed = reap_orphans(PATIENCE)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    file.write_text(json.dumps({
        "code": code, "wall_s": ended - began, "all_ended_s": time.monotonic() - began,
        "after_last_line_s": None if last_line is None else ended - last_line, "cpu_s": used.ru_utime + used.ru_stime,
        "peak_mib": used.ru_maxrss / 1024, "orphans": orphans, "killed": killed}))
    # As in a shell, so that a killed program does not count as successful.
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
