"""Measures the gain of a fix by hand: `pairs.py NAME` runs a program before and after its diff, five times in turn.

Prints one line of JSON with milliseconds a step.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import re
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
PAIRS = 5
# Time of each run before its clock starts: batches that workers made while the other program ran are used up.
TURN_SECONDS = 0.1


def patched(source: str, diff: str) -> str:
    """The text after a unified diff of one file, whose context must be there.

    Raises ValueError.
    """
    lines, done, at = source.splitlines(keepends=True), [], 0
    for line in diff.splitlines(keepends=True)[2:]:
        if hunk := re.match(r"@@ -(\d+)", line):
            done += lines[at:int(hunk[1]) - 1]
            at = int(hunk[1]) - 1
        elif line[0] == "+":
            done.append(line[1:])
        else:
            if at >= len(lines) or lines[at] != line[1:]:
                raise ValueError(f"the diff does not apply: {line[1:].rstrip()}")
            done += [line[1:]] if line[0] == " " else []
            at += 1
    return "".join(done + lines[at:])


def load(path: pathlib.Path, name: str):
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # for worker processes
    found.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(path.stem for path in PROGRAMS.glob("*.diff")), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=0.3, help="time of each run (default 0.3)")
    parser.add_argument("--go", type=pathlib.Path, metavar="FILE", help="write FILE.ready when loaded, and wait for FILE")
    options = parser.parse_args()
    sys.path.insert(0, str(PROGRAMS))
    import loop

    source = (PROGRAMS / f"{options.name}.py").read_text()
    with tempfile.TemporaryDirectory() as folder:
        fixed = pathlib.Path(folder) / f"{options.name}_fixed.py"
        fixed.write_text(patched(source, (PROGRAMS / f"{options.name}.diff").read_text()))
        programs = {"before": load(PROGRAMS / f"{options.name}.py", options.name), "after": load(fixed, fixed.stem)}
    if options.go is not None:
        options.go.with_suffix(".ready").touch()
        while not options.go.exists():
            time.sleep(0.02)
    times: dict[str, list[float]] = {"before": [], "after": []}
    steps = {}
    for role, program in programs.items():
        steps[role] = program.build()
        loop.repeat(steps[role], loop.WARM_SECONDS)
    for number in range(PAIRS):
        for role in ("before", "after") if number % 2 == 0 else ("after", "before"):
            loop.repeat(steps[role], TURN_SECONDS)
            times[role].append(round(loop.repeat(steps[role], options.seconds), 4))
    print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
