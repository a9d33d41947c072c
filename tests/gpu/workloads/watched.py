"""Starts a program, watches it with `gpuwhy top`, and prints the cost for both: one line of JSON.

    watched.py --gpuwhy FILE --seconds N -- PROGRAM ARGUMENTS

The program must run for about four times N seconds after its start. Times are those of /proc: processor time of
gpuwhy's threads in the program, by name, and of the viewers.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import time

START_LIMIT = 100.0


def processor_ns(process: int, beginning: str) -> dict[str, int]:
    """Processor time of the threads of a process whose names have this prefix, by name."""
    times: dict[str, int] = {}
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            spent = int((task / "schedstat").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            continue  # It has ended meanwhile.
        if name.startswith(beginning):
            times[name] = times.get(name, 0) + spent
    return times


def live(gpuwhy: str, process: int) -> dict | None:
    """Reply of the process, once it is measured."""
    reported = subprocess.run([gpuwhy, "top", "--json", str(process)], capture_output=True, text=True, timeout=30)
    answers = [json.loads(line) for line in reported.stdout.splitlines()]
    return next((answer for answer in answers if answer.get("type") == "live" and answer["kernels"] > 0), None)


def measured(gpuwhy: str, process: int, seconds: float, viewers: int) -> dict:
    """Shares of a core that gpuwhy's threads and a viewer take, and the replies of the first viewer."""
    command = [gpuwhy, "top", "--follow", str(process)]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL, text=True)
        for number in range(viewers)
    ]
    time.sleep(1.5)
    begin, before = time.monotonic(), processor_ns(process, "gpuwhy-")
    viewer_before = sum(processor_ns(started[0].pid, "").values()) if started else 0
    time.sleep(seconds)
    elapsed, after = time.monotonic() - begin, processor_ns(process, "gpuwhy-")
    viewer_after = sum(processor_ns(started[0].pid, "").values()) if started else 0
    for viewer in started:
        viewer.terminate()
    lines = started[0].communicate()[0].splitlines() if started else []
    for viewer in started[1:]:
        viewer.wait()
    answers = [json.loads(line) for line in lines]
    answers = [answer for answer in answers if answer.get("type") == "live"]
    share = {name: (nanos - before.get(name, 0)) / elapsed / 1e9 for name, nanos in after.items()}
    states = {answer["until_unix_ns"]: answer["cost_ns"] for answer in answers}
    return {
        "seconds": elapsed, "threads": share, "viewer": (viewer_after - viewer_before) / elapsed / 1e9,
        "answers": len(answers), "states": len(states), "state_ns": sorted(states.values()),
        "pause_ms": max((answer["pause_ms"] for answer in answers), default=0),
        "bytes": max(map(len, lines), default=0),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpuwhy", required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    program = subprocess.Popen(options.program, stdout=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + START_LIMIT
        while live(options.gpuwhy, program.pid) is None:
            if program.poll() is not None or time.monotonic() > limit:
                print(f"the program was never seen with a kernel (exit code {program.poll()})", file=sys.stderr)
                return 1
            time.sleep(0.5)
        found = {str(viewers): measured(options.gpuwhy, program.pid, options.seconds, viewers) for viewers in (0, 1, 8)}
        answer = live(options.gpuwhy, program.pid)
        print(json.dumps({"by_viewers": found, "answer": answer, "over": program.poll() is not None}))
        return 0
    finally:
        program.terminate()
        program.wait()


if __name__ == "__main__":
    sys.exit(main())
