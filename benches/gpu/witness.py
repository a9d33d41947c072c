"""Runs a command and writes down what it used: the outermost process of a measurement.

    python3 witness.py FILE COMMAND...

Passes stdout on line by line and notes when the last line came: from there to the end of the process is what a tool
still did before its answer was there. FILE gets a JSON object: `code`, `wall_s`, `after_last_line_s`, `cpu_s` (of the
command and all its descendants that were waited for) and `peak_mib` (of the largest single process).
"""

from __future__ import annotations

import json
import pathlib
import resource
import subprocess
import sys
import time


def main() -> int:
    file, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
    began = time.monotonic()
    last_line = began
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        for line in process.stdout:
            last_line = time.monotonic()
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    ended = time.monotonic()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    file.write_text(json.dumps({
        "code": process.returncode, "wall_s": ended - began, "after_last_line_s": ended - last_line,
        "cpu_s": used.ru_utime + used.ru_stime, "peak_mib": used.ru_maxrss / 1024}))
    # As a shell says it, so that a killed program is not taken for one that ended well.
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main())
