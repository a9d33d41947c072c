#!/usr/bin/env python3
"""Plays each recording of testing/fixtures through libprof.so for Arm, under qemu-user, and through that of this machine,
and compares the printed reports and every field of `gpuwhy report --json`, which each command makes from its own trace.

    tests/arm.py ARM HOST     folders with gpuwhy, libprof.so, libcupti_replay.so and gpuwhy-replay-host
"""

from __future__ import annotations

import concurrent.futures
import difflib
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "build_backend")]
import gpuwhy_build  # noqa: E402
import wheel  # noqa: E402

# Fields that differ between any two runs.
OWN_FIELD = re.compile("process/(pid|parent_pid|command/0)|cost/(callback_ns|share_at_most|threads_cpu_ns)|"
                       r"graph_origins/threads/\d+/thread")
# Their places in the printed report, with any whitespace as one space.
OWN_WORDS = (r"gpuwhy: process \d+ \([^)]*\)", r"slowed down by up to about [\d.]+ %", r"gpuwhy's threads [\d.]+ % of a core",
             r"trace: \S+", r"thread \d+, without a line")


def main() -> int:
    arm, host = (pathlib.Path(folder).resolve() for folder in sys.argv[1:])
    emulator = wheel.runner("aarch64")
    if emulator is None:
        print("SKIPPED: qemu-user-static is unavailable from Debian: built for Arm, not run")
        return 0
    recordings = sorted((ROOT / "testing" / "fixtures").rglob("*.cupti.zst"))
    assert recordings, "testing/fixtures has no recordings"
    lines = fields = rounded = wrong = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        ours = [pool.submit(played, emulator, arm, path) for path in recordings]
        theirs = [pool.submit(played, [], host, path) for path in recordings]
        for path, our, their in zip(recordings, ours, theirs, strict=True):
            (text, report), (wanted_text, wanted) = our.result(), their.result()
            found, other_bits = different(report, wanted)
            if masked(text) != masked(wanted_text):
                found += list(difflib.unified_diff(wanted_text.splitlines(), text.splitlines(), "here", "on Arm", lineterm=""))
            for problem in found:
                print(f"{path.name}: {problem}", file=sys.stderr)
            lines, fields, wrong = lines + len(text.splitlines()), fields + len(report), wrong + bool(found)
            rounded += other_bits
    print(f"{len(recordings)} recordings on Arm, under qemu-user: {lines} lines of reports and {fields} fields of JSON compared, "
          + (f"{wrong} recordings differ" if wrong else f"all equal, {rounded} of them but for the last bit of a number"))
    return 1 if wrong else 0


def played(emulator: list[str], folder: pathlib.Path, recording: pathlib.Path) -> tuple[str, dict[str, object]]:
    """The full report that libprof.so prints, and the fields of that which `gpuwhy` makes from the trace, by their paths."""
    place = {name: str(gpuwhy_build.place(folder, name)) for name in ("gpuwhy", "libprof.so", *gpuwhy_build.DEMO)}
    with tempfile.TemporaryDirectory() as scratch:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("GPUWHY_", "NCCL_"))}
        # Both variables, as `gpuwhy run` sets them: qemu-user has a thread of its own, and only a program without other
        # threads may still set the second one. Threads and devices of this machine are no part of a recording.
        environment |= {
            "CUDA_INJECTION64_PATH": place["libprof.so"], "NVTX_INJECTION64_PATH": place["libprof.so"],
            "GPUWHY_CUPTI_PATH": place["libcupti_replay.so"], "GPUWHY_REPLAY": str(recording), "GPUWHY_OUTPUT": "trace.gpuwhy",
            "GPUWHY_REPORT": "full", "GPUWHY_CUDA_GRAPH_TRACE": "node", "GPUWHY_DEPENDENCIES": "on",
            "GPUWHY_CUDA_MEMORY_USAGE": "on", "GPUWHY_BUFFER_MEMORY": "4G", "GPUWHY_EXIT_TIMEOUT": "5m", "GPUWHY_CONTROL": "off",
            "GPUWHY_SAMPLING": "off", "GPUWHY_GPU_METRICS": "off", "XDG_CACHE_HOME": scratch, "XDG_STATE_HOME": scratch}

        def said(*command: str, expected: str) -> str:
            run = subprocess.run([*emulator, *command], env=environment, cwd=scratch, capture_output=True, text=True, check=False)
            assert run.returncode == 0, f"{command} on {recording.name} ended with {run.returncode}:\n{run.stdout}{run.stderr}"
            return getattr(run, expected)

        text = said(place["gpuwhy-replay-host"], expected="stderr")
        for variable in [name for name in environment if name.startswith(("CUDA_", "NVTX_", "GPUWHY_"))]:
            del environment[variable]
        report = json.loads(said(place["gpuwhy"], "report", "--json", "trace.gpuwhy", expected="stdout"))
    return text, {path: value for path, value in flat(report) if not OWN_FIELD.fullmatch(path)}


def flat(value: object, path: str = ""):
    """Fields by path; an empty list or object is one field."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if parts is None or not value:
        yield path, value
        return
    for name, part in parts:
        yield from flat(part, f"{path}/{name}".removeprefix("/"))


def different(report: dict[str, object], wanted: dict[str, object]) -> tuple[list[str], int]:
    """What differs, and how many fields differ only as hypot and cbrt of the C library do: glibc rounds them differently on
    Arm."""
    paths = sorted(report.keys() | wanted.keys())
    pairs = [(path, report.get(path, "(none)"), wanted.get(path, "(none)")) for path in paths]
    pairs = [pair for pair in pairs if pair[1] != pair[2]]
    wrong = [(path, ours, theirs) for path, ours, theirs in pairs
             if not (isinstance(ours, float) and isinstance(theirs, float) and math.isclose(ours, theirs, rel_tol=1e-15))]
    return [f"{path}: {ours!r} on Arm, {theirs!r} here" for path, ours, theirs in wrong], len(pairs) - len(wrong)


def masked(text: str) -> str:
    return re.sub("|".join(OWN_WORDS), "", " ".join(text.split()))


if __name__ == "__main__":
    sys.exit(main())
