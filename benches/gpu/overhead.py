"""Cost of recording: no tool, CUPTI alone, gpuwhy, Nsight Systems and torch.profiler on the same programs, in turns.

    python3 benches/gpu/overhead.py --bin target/release --out FILE.json [--budget SECONDS]

PyTorch is imported once, in a process that never calls CUDA; each run is a fork of it, so that a run takes the seconds of
its program alone. A round runs each program under all tools of the round, in random order. The result is the median over
the rounds of a tool's time divided by the bare time *of the same round*, because clocks and other tenants move times by
several percent within minutes. The programs time themselves (measured_programs.py), without their start.

nsys has to start its program: it has a process of its own, compared with a bare process of its own in the same round.

FILE is written after each run (measured.py). No round begins that would not end within the budget, unless it is the
first. `publish.py` puts two such files into the documentation.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import gc
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "gpu"))

import machine as machines  # noqa: E402
from harness import REPOSITORY, Suite, find_nsys  # noqa: E402
from measured import BARE, OWN_BARE, Measured  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
# Longest run of one program, seconds: nsys takes 15 for what lasts 4.
RUN_LIMIT = 60.0
# Time from its figures to its end that a fork may take, seconds.
ENDS_WITHIN = 5.0
NSYS = ["-t", "cuda", "-s", "none", "--cpuctxsw=none", "-f", "true", "-o", "report"]
# Tool -> variables of its library; and the library, by the name of the option.
VARIABLES = {
    "floor": {}, "gpuwhy": {}, "monitor": {"GPUWHY_MODE": "monitor"}, "auto": {"GPUWHY_MODE": "auto"},
    "full": {"GPUWHY_MODE": "full"}}
# A tool runs in one of so many rounds; those that are not here in each.
EVERY = {"floor": 2, "auto": 2, "again": 3, "full": 3, "torch": 3, "nsys": 4}


@dataclasses.dataclass(frozen=True)
class Item:
    """Programs that one process runs, and the tools that run them."""

    name: str
    programs: tuple[str, ...]
    tools: tuple[str, ...]
    # What the process is called.
    title: str = "train.py"


ITEMS = (
    Item("training", ("mlp", "gpt", "resnet"), (BARE, "again", "floor", "gpuwhy", "monitor", "full", "torch")),
    Item("decode", ("decode",), (BARE, "floor", "gpuwhy", "monitor", "torch"), "decode.py"),
    Item("serving", ("serving",), (BARE, "floor", "gpuwhy", "monitor", "auto", "torch"), "server.py"),
    Item("launch", (), (BARE, "again", "floor", "gpuwhy", "monitor", "full")),
    Item("nsys", ("mlp", "gpt", "resnet", "decode", "serving_8"), (OWN_BARE, "nsys")),
)
LAUNCH = ["launch", "20000", "--reps", "3"]


def runs_in(tool: str, number: int) -> bool:
    """True if the tool runs in this round. Tools that run seldom do so in different rounds."""
    every = EVERY.get("nsys" if tool == OWN_BARE else tool, 1)
    offset = 1 if tool in ("torch", "auto") else 2 if tool == "full" else 0
    return number % every == offset % every


class Failed(Exception):
    """A run without a figure."""


def forked(work: Callable[[], dict], variables: dict[str, str], limit: float) -> tuple[dict, list[float], str]:
    """Result of a function in a fork of this process, the fork's CPU seconds and peak MiB, and how it ended if not well.

    Raises Failed if there is no result.
    """
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read)
        os.setsid()
        os.environ.update(variables)
        # libprof.so and the programs may print.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001
            result = {"error": f"{type(error).__name__}: {error}"[:300]}
        os.write(write, json.dumps(result).encode())
        os.close(write)
        # As at the end of a program, so that the library writes its last records.
        ctypes.CDLL(None).exit(0)
    os.close(write)
    said, end = b"", time.monotonic() + limit
    with contextlib.closing(os.fdopen(read, "rb", buffering=0)) as pipe:
        while (left := end - time.monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
            part = pipe.read(65536)
            if not part:
                break
            said += part
    pidfd = os.pidfd_open(process)
    ended = select.select([pidfd], [], [], max(0.5, min(ENDS_WITHIN, end - time.monotonic())))[0]
    os.close(pidfd)
    if not ended:
        os.killpg(process, signal.SIGKILL)
    _, status, used = os.wait4(process, 0)
    try:
        result = json.loads(said)
    except ValueError:
        raise Failed(f"no figures, status {status}") from None
    if "error" in result:
        raise Failed(result["error"])
    ending = "" if status == 0 else f"ended with status {status}" if ended else "had to be killed at its end"
    return result, [used.ru_utime + used.ru_stime, used.ru_maxrss / 1024], ending


def be_called(name: str) -> None:
    """Replaces the command line that others see: gpuwhy takes a program for a server by it.

    The name must be shorter than the command line was.
    """
    fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    ctypes.memmove(begin, f"python3\0{name}".encode().ljust(end - begin, b"\0")[: end - begin], end - begin)


class Rounds:
    """Runs the programs of a round."""

    def __init__(self, suite: Suite, floor: pathlib.Path | None, measured: Measured, out: pathlib.Path, stop: float) -> None:
        self.suite, self.floor, self.measured, self.out, self.stop = suite, floor, measured, out, stop
        # Longest time of a run, by its item and tool, seconds.
        self.longest: dict[tuple[str, str], float] = {}

    def variables(self, tool: str, item: Item) -> dict[str, str]:
        """Variables of a process under a tool, in a fresh folder."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.suite.scratch))
        if tool not in VARIABLES:
            return {}
        if tool == "floor":
            by_nodes = {"FLOOR_RECORDS": "nodes"} if item.name == "decode" else {}
            return {"CUDA_INJECTION64_PATH": str(self.floor), **by_nodes}
        long = {"COST_LONG": "1"} if tool == "gpuwhy" else {}
        return {
            "CUDA_INJECTION64_PATH": str(self.suite.library), "GPUWHY_REPORT": "off", "GPUWHY_CONTROL": str(folder),
            "GPUWHY_OUTPUT": str(folder / "%p.gpuwhy"), "XDG_STATE_HOME": str(folder), **VARIABLES[tool], **long}

    def in_fork(self, item: Item, tool: str) -> tuple[dict, list[float], str]:
        """One run of PyTorch programs."""
        variables = self.variables(tool, item)
        library = variables.get("CUDA_INJECTION64_PATH")

        def work() -> dict:
            import measured_programs

            be_called(item.title)
            figures = measured_programs.measure(list(item.programs), tool == "torch")
            if library and library not in pathlib.Path("/proc/self/maps").read_text():
                raise Failed(f"{library} was not loaded")
            return figures

        return forked(work, variables, min(RUN_LIMIT, self.stop - time.monotonic()))

    def launch(self, tool: str) -> dict:
        """One run of empty kernels."""
        command = [str(self.suite.microbench), *LAUNCH]
        if tool == "nsys":
            command = [self.suite.nsys, "profile", *NSYS, *command]
        return {"launch": float(self.printed(f"launch-{tool}", command, tool, r"time_per_operation_ns=([\d.]+)"))}

    def printed(self, name: str, command: list[str], tool: str, pattern: str) -> str:
        """What a process prints. Raises Failed."""
        extra = self.suite.nsys_environment() if tool == "nsys" else self.variables(tool, ITEMS[3])
        run = self.suite.run(name, command, extra=extra, limit=min(RUN_LIMIT, self.stop - time.monotonic()))
        match = re.search(pattern, run.stdout)
        recorded = tool != "nsys" or any(run.folder.glob("report.*"))
        shutil.rmtree(run.folder, ignore_errors=True)
        if match is None or not recorded:
            raise Failed(f"{run.ending()}: {(run.stderr.strip() or 'nothing recorded').splitlines()[-1][:200]}")
        return match[1]

    def alone(self, item: Item, tool: str) -> dict:
        """Figures of PyTorch programs in a process that was started for them, and of empty kernels."""
        command = [sys.executable, "-W", "ignore", str(HERE / "measured_programs.py"), *item.programs]
        wrapped = [self.suite.nsys, "profile", *NSYS, *command] if tool == "nsys" else command
        figures = json.loads(self.printed(f"alone-{tool}", wrapped, tool, r"(?m)^(\{.*\})$"))
        return {**figures, **self.launch(tool)}

    def run(self, item: Item, tool: str, number: int) -> None:
        """One run; its figures, or why there are none, go into the file."""
        began = time.monotonic()
        used, ending = None, ""
        try:
            if item.name == "nsys":
                figures = self.alone(item, tool)
            elif item.programs:
                figures, used, ending = self.in_fork(item, tool)
            else:
                figures = self.launch(tool)
            self.measured.add(number, item.name, tool, figures, used)
            said = " ".join([*(f"{name} {value:.4g}" for name, value in figures.items()), ending])
            if ending:
                self.measured.failed(number, item.name, tool, f"{ending}, after its figures")
        except (Failed, OSError, ValueError) as error:
            said = f"failed: {error}"
            self.measured.failed(number, item.name, tool, str(error))
        self.measured.save(self.out)
        seconds = time.monotonic() - began
        self.longest[item.name, tool] = max(self.longest.get((item.name, tool), 0.0), seconds)
        print(f"round {number} {item.name} {tool}: {said} ({seconds:.1f} s)", flush=True)

    def tools(self, item: Item, number: int, without: set[str]) -> list[str]:
        return [tool for tool in item.tools if tool not in without and runs_in(tool, number)]

    def fits(self, number: int, items: list[Item], without: set[str]) -> bool:
        """True if the round is expected to end in time, or is the first."""
        expected = sum(self.longest.get((item.name, tool), 0.0) for item in items for tool in self.tools(item, number, without))
        return not self.longest or time.monotonic() + expected < self.stop

    def round(self, number: int, items: list[Item], without: set[str]) -> bool:
        """One round; False if the time was over within it."""
        began, choose = time.monotonic(), random.Random(number)
        self.measured.begin_round(number)
        for item in choose.sample(items, len(items)):
            tools = self.tools(item, number, without)
            for tool in choose.sample(tools, len(tools)):
                if time.monotonic() > self.stop - 5:
                    return False
                self.run(item, tool, number)
        self.measured.end_round(number, time.monotonic() - began)
        self.measured.save(self.out)
        print(f"round {number}: {time.monotonic() - began:.1f} s", flush=True)
        return True


def build_floor(suite: Suite) -> pathlib.Path | None:
    """Builds libfloor.so; None, with a printed reason, if that fails."""
    try:
        return suite.compile_injection(HERE / "floor.cpp")
    except (FileNotFoundError, RuntimeError) as error:
        print(f"floor: left out, {error}", flush=True)
        return None


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=REPOSITORY / "target" / "release",
                        help="folder with gpuwhy and libprof.so")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=12, help="rounds at most (default 12)")
    parser.add_argument("--budget", type=float, default=540.0, metavar="SECONDS",
                        help="begin no round that would not end within this time (default 540)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", choices=[item.name for item in ITEMS],
                        help=", ".join(item.name for item in ITEMS))
    parser.add_argument("--without", action="append", default=[], metavar="TOOL")
    parser.add_argument("--microbench", type=pathlib.Path, help="built microbench (default: built here with nvcc)")
    parser.add_argument("--nsys", default=find_nsys())
    parser.add_argument("--nsys-libs", metavar="DIR", default=os.environ.get("GPUWHY_NSYS_LIBS"),
                        help="folder with libdw.so.1 and libelf.so.1 for nsys's importer")
    return parser.parse_args()


def main() -> int:
    began = time.monotonic()
    options = parse()
    folder = options.out.resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    suite = Suite(options.bin.resolve(), folder, options.nsys, options.nsys_libs, log_name=f"{options.out.stem}-log.txt")
    if options.microbench:
        suite.microbench = options.microbench.resolve()
    else:
        suite.build_microbench()
    floor = build_floor(suite)
    without = {*options.without, *(() if floor else ("floor",)), *(() if suite.nsys else ("nsys", OWN_BARE))}
    items = [item for item in ITEMS if not options.only or item.name in options.only]
    measured = Measured(machines.describe(suite))
    measured.begin()
    import measured_programs  # noqa: F401

    gc.freeze()
    print(f"loaded after {time.monotonic() - began:.1f} s", flush=True)
    rounds = Rounds(suite, floor, measured, options.out, began + options.budget)
    for number in range(options.rounds):
        if not rounds.fits(number, items, without) or not rounds.round(number, items, without):
            break
    shutil.rmtree(suite.scratch, ignore_errors=True)
    print("\n" + measured.table())
    return 0 if measured.complete() and not measured.errors else 1


if __name__ == "__main__":
    sys.exit(main())
