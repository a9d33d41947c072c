#!/usr/bin/env python3
"""Instructions per record of the hot path, compared with stored counts.

    benches/instructions.py            # compares with benches/instructions.txt; exit status 1: a count rose by over 3 %
    benches/instructions.py --bless    # stores the counts

Counted by callgrind (`apt-get install valgrind`), so a busy machine does not matter. Another compiler or standard library
does: bless on the commit before the change, then compare. Takes some minutes.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
WRITTEN = HERE / "instructions.txt"
# Unrelated changes of the code move a count by less than this.
LIMIT = 0.03

# Benchmark, the part of a load's name that selects it, and the functions to count, with the unit that each call
# handles.
LOADS = [
    ("attribution", load, {"attribution::run": ["without replay", "with replay"]})
    for load in ["launch-bound", "device-bound", "8 threads", "graphs"]
] + [
    ("trace", load, {"trace::write": ["encode"], "trace::read": ["decode"]})
    for load in ["kernels", "API calls", "all kinds"]
]


def binaries() -> dict[str, str]:
    """Builds the benchmarks, and returns their paths."""
    command = ["cargo", "bench", "-p", "profiler-core", "-p", "gpuwhy-trace", "--no-run", "--bench", "attribution", "--bench", "trace"]
    built = subprocess.run(command, cwd=HERE.parent, stderr=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit(built.stderr)
    found = re.findall(r"Executable benches/(\w+)\.rs \((.+)\)", built.stderr)
    return {name: str(HERE.parent / path) for name, path in found}


def count(binary: str, load: str, function: str) -> tuple[int, list[int]]:
    """Records of the load, and instructions of each call of the function."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "counts")
        command = ["valgrind", "--tool=callgrind", f"--toggle-collect={function}", f"--dump-after={function}"]
        command += [f"--callgrind-out-file={out}", binary, "--once", load]
        try:
            ran = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            sys.exit("valgrind is not here: apt-get install valgrind")
        if ran.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{ran.stderr}")
        row = next(line for line in ran.stdout.splitlines() if line.startswith(load))
        # Names contain numbers too, but only short ones.
        records = int(re.search(r"\s(\d{5,})\s", row)[1])
        dumps = sorted(Path(folder).glob("counts.*"), key=lambda path: int(path.suffix[1:]))
        totals = [int(re.search(r"^(?:summary|totals): (\d+)", dump.read_text(), re.M)[1]) for dump in dumps]
    return records, [total for total in totals if total > 0]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bless", action="store_true", help="write the counts down")
    bless = arguments.parse_args().bless
    rows = [line.rsplit(maxsplit=1) for line in WRITTEN.read_text().splitlines()] if WRITTEN.exists() else []
    before = {name.strip(): int(value) for name, value in rows}
    built = binaries()
    lines, worse = [], False
    for bench, load, functions in LOADS:
        for function, calls in functions.items():
            records, totals = count(built[bench], load, function)
            if len(totals) != len(calls):
                sys.exit(f"{function} was called {len(totals)} times for `{load}`, expected {len(calls)}")
            for what, total in zip(calls, totals):
                name, now = f"{bench}, {load}, {what}", round(total / records)
                then = before.get(name)
                change = f"{now / then - 1:+.1%}" if then else "new"
                worse |= bool(then) and now > then * (1 + LIMIT)
                print(f"{name:44}{then or '':>8}{now:>8}  {change}", flush=True)
                lines.append(f"{name:44}{now:>8}\n")
    if bless:
        WRITTEN.write_text("".join(lines))
    sys.exit(worse and not bless)


if __name__ == "__main__":
    main()
