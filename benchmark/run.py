#!/usr/bin/env python3
"""Runs tools over programs with a planted cause, and scores their answers on a strict sheet; see README.md.

    python3 benchmark/run.py --tool gpuwhy                     # records all programs, answers, scores; needs a GPU
    python3 benchmark/run.py --tool hta --from OUT             # answers of a tool from recordings in OUT
    python3 benchmark/run.py --stored                          # scores the stored answers; needs no GPU
    python3 benchmark/run.py --stored --table                  # the tables of README.md

Exit status: 0, 2 for wrong arguments, 3 if a tool could not answer for a program.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import scoring
from pairs import HERE, PROGRAMS
from tools import TOOLS, Unavailable

# Part of the time of a recorded loop; for torch.profiler, that of the loop before the steps that it records.
LENGTHS = {"nsys": 0.5, "kineto": 0.25}
# Time for all programs to load their libraries, and for one to run, seconds.
LOAD_LIMIT, RUN_LIMIT = 240.0, 60.0


class Run:
    """A started program, which waits until it is its turn. Raises Unavailable."""

    def __init__(self, folder: pathlib.Path, kind: str, name: str, command: list[str]) -> None:
        self.kind, self.name, self.go = kind, name, folder / f"{kind}.{name}.go"
        self.log = folder / f"{kind}.{name}.log"
        for file in (self.go, self.go.with_suffix(".ready")):
            file.unlink(missing_ok=True)
        with self.log.open("wb") as out:
            try:
                self.process = subprocess.Popen(
                    [*command, "--go", str(self.go)], cwd=PROGRAMS, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                    start_new_session=True)
            except OSError as error:
                raise Unavailable(f"{command[0]}: {error.strerror}") from error

    def wait_ready(self, until: float) -> bool:
        ready = self.go.with_suffix(".ready")
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                # It may have written the file and ended in between.
                return ready.exists()
            time.sleep(0.05)
        return True

    def result(self) -> str | None:
        """Its result, which it prints at the end of its measured loop; None if it fails."""
        self.go.touch()
        until, is_over = time.monotonic() + RUN_LIMIT, False
        while not is_over:
            is_over = self.process.poll() is not None or time.monotonic() > until
            if found := re.search(r"^(\{.*\}|[\d.]+ ms/step)$", self.log.read_text(errors="replace"), re.M):
                return found[1]
            time.sleep(0.02)
        return None

    def end(self) -> None:
        """Lets it write its recording and exit, and ends what is left: the program under nsys too."""
        if self.go.exists():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(RUN_LIMIT)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def commands(kind: str, folder: pathlib.Path, name: str, seconds: float) -> list[str]:
    if kind == "bare":
        return [sys.executable, str(HERE / "pairs.py"), name]
    where = folder / kind
    where.mkdir(exist_ok=True)
    tool = next(tool for tool in TOOLS.values() if tool.recorder == kind)
    more = ["--kineto", str(where), name] if kind == "kineto" else []
    length = seconds * LENGTHS.get(kind, 1.0)
    return [*tool.record(where, name), str(PROGRAMS / f"{name}.py"), "--seconds", f"{length:g}", *more]


def record(folder: pathlib.Path, kinds: list[str], names: list[str], seconds: float, budget: float | None) -> None:
    """Records the programs with all tools; all load their libraries first, and then run one after the other.

    Writes `times.json` with milliseconds a step.
    """
    began = time.monotonic()
    times: dict[str, dict] = {}
    runs: dict[tuple[str, str], Run] = {}
    try:
        for kind in kinds:
            try:
                for name in names:
                    runs[kind, name] = Run(folder, kind, name, commands(kind, folder, name, seconds))
            except Unavailable as error:
                print(f"{kind}: {error}", file=sys.stderr)
        ready = {key for key, run in runs.items() if run.wait_ready(began + LOAD_LIMIT)}
        print(f"{len(ready)} of {len(runs)} loaded in {time.monotonic() - began:.0f} s", flush=True)
        for name in names:
            if budget is not None and time.monotonic() - began > budget:
                print(f"{name}: no time left", flush=True)
                continue
            for kind in kinds:
                result = runs[kind, name].result() if (kind, name) in ready else None
                print(f"{time.monotonic() - began:5.0f} s  {kind} {name}: {result or 'failed'}", flush=True)
                if result:
                    times.setdefault(kind, {})[name] = json.loads(result) if result[0] == "{" else float(result.split()[0])
                if kind == "gpuwhy" and result:
                    runs[kind, name].end()
    finally:
        for run in runs.values():
            run.end()
    (folder / "times.json").write_text(json.dumps(times, indent=1) + "\n")


def answer(folder: pathlib.Path, tool: str, names: list[str]) -> bool:
    """Writes answers of a tool from its recordings. Returns whether all could be had."""
    found, where = TOOLS[tool], folder / "answers" / tool
    where.mkdir(parents=True, exist_ok=True)

    def one(name: str) -> bool:
        try:
            (where / f"{name}.txt").write_text(found.answer(folder / found.recorder, name))
            return True
        except Exception as error:  # a tool that fails on its own recording has no answer
            print(f"{tool} {name}: {type(error).__name__}: {error}", file=sys.stderr)
            return False

    # Commands answer side by side; the others are Python code that this process runs.
    with concurrent.futures.ThreadPoolExecutor(8 if tool in ("gpuwhy", "nsys") else 1) as pool:
        complete = all(list(pool.map(one, names)))
    try:
        (where / "version").write_text(found.version() + "\n")
    except Exception as error:
        print(f"{tool}: {error}", file=sys.stderr)
    return complete


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", action="append", choices=TOOLS, help="gpuwhy, nsys, tensorboard or hta; repeatable (default: all)")
    parser.add_argument("--programs", nargs="+", choices=scoring.names(), metavar="NAME", default=scoring.names())
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("benchmark-out"), help="new recordings and answers")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--from", dest="source", type=pathlib.Path, metavar="OUT", help="recordings of an earlier run")
    source.add_argument("--stored", action="store_true", help="score the stored answers")
    parser.add_argument("--no-answers", action="store_true", help="only record: another machine has the tools")
    parser.add_argument("--table", action="store_true", help="print the tables of README.md")
    parser.add_argument("--seconds", type=float, default=2.0, help="time of a recorded loop (default 2; nsys half of it, torch.profiler a quarter)")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="start no further program after this time")
    options = parser.parse_args()
    if options.source is not None and not (options.source / "times.json").is_file():
        parser.error(f"--from {options.source}: no recordings; give the --out of an earlier run")
    tools = options.tool or list(TOOLS)
    if options.stored:
        return scoring.show(HERE, tools, options.programs, options.table)
    folder = (options.source or options.out).resolve()
    if options.source is None:
        folder.mkdir(parents=True, exist_ok=True)
        record(folder, ["bare", *dict.fromkeys(TOOLS[tool].recorder for tool in tools)], options.programs, options.seconds, options.budget)
    if options.no_answers:
        return 0
    times = scoring.read(folder / "times.json").values()
    names = [name for name in options.programs if any(name in one for one in times)]  # for the others no time was left
    complete = all([answer(folder, tool, names) for tool in tools])
    scoring.show(folder, tools, names, options.table)
    return 0 if names and complete else 3


if __name__ == "__main__":
    sys.exit(main())
