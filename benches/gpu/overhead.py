"""Cost of recording: no tool, CUPTI alone, gpuwhy, Nsight Systems and torch.profiler on the same programs, in turns.

    python3 benches/gpu/overhead.py --bin target/release --out FILE.json [--budget SECONDS]

PyTorch is imported once, in a process that never calls CUDA. A generation is a fork of it for each program and tool, all
alive at the same time: a turn is one short repetition of a program in one of them, while the others wait. A round gives
each a turn, program by program, the tools in random order, so a turn and its bare turn are less than a second apart:
the speed of a host changes by tens of percent within 20 seconds. The tool's cost in a process is partly decided when the
process starts, so there are several generations.

nsys has to start its program: it has one process for all generations, which takes turns like the others.

FILE is written after each round (measured.py). `publish.py` puts two such files into the documentation.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import gc
import importlib
import json
import os
import pathlib
import random
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "gpu"))

import machine as machines  # noqa: E402
from harness import REPOSITORY, Suite, find_nsys  # noqa: E402
from measured import AGAIN, BARE, GENERATIONS, Measured  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
NSYS = ["-t", "cuda", "-s", "none", "--cpuctxsw=none", "-f", "true"]
# Longest set-up of all processes of a generation, longest turn, and longest ends, seconds.
SET_UP_WITHIN, TURN_WITHIN, ENDS_WITHIN, NSYS_ENDS_WITHIN = 60.0, 20.0, 4.0, 12.0
# Tools that have a turn in one of so many rounds, with their programs or in all.
EVERY = {
    "full": 3, "torch": 4, "nsys": 3, "again serving": 2, "floor serving": 2, "auto serving": 2, "again decode": 2,
    "capture decode": 2}
# Variables of libprof.so for each variant of gpuwhy. `later` and `capture` are the default's decode step, after recording
# has ended, and in a capture by command.
VARIABLES = {
    "gpuwhy": {}, "later": {"COST_DECODE": "later"}, "capture": {"COST_DECODE": "capture", "GPUWHY_CAPTURE_RANGE": "command"},
    "monitor": {"GPUWHY_MODE": "monitor"}, "auto": {"GPUWHY_MODE": "auto"}, "full": {"GPUWHY_MODE": "full"}}


@dataclasses.dataclass(frozen=True)
class Item:
    """Programs that one process runs, and the tools of which each has such a process."""

    name: str
    programs: tuple[str, ...]
    tools: tuple[str, ...]


ITEMS = (
    Item("train", ("mlp", "gpt", "resnet", "launch"), (BARE, AGAIN, "floor", "gpuwhy", "monitor", "full", "torch")),
    Item("decode", ("decode",), (BARE, AGAIN, "floor", "gpuwhy", "later", "capture", "monitor", "torch")),
    Item("server", ("serving",), (BARE, AGAIN, "floor", "gpuwhy", "monitor", "auto", "torch")),
)


def has_turn(tool: str, program: str, number: int) -> bool:
    """True if the tool has a turn of the program in the round."""
    return number % EVERY.get(f"{tool} {program}", EVERY.get(tool, 1)) == 0


class Failed(Exception):
    """A process that gave no answer, or an error."""


def be_called(name: str) -> None:
    """Replaces the command line that others see: gpuwhy takes a program for a server by it.

    The name must be shorter than the command line was.
    """
    fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    ctypes.memmove(begin, f"python3\0{name}".encode().ljust(end - begin, b"\0")[: end - begin], end - begin)


class Process:
    """A process that takes turns: it reads names of programs and answers with lines of JSON."""

    def __init__(self, process: int, requests: int, answers: int) -> None:
        self.process, self.requests, self.answers = process, requests, answers
        self.said = b""

    @classmethod
    def forked(cls, work: Callable[[int, int], None], variables: dict[str, str], others: list[Process]) -> Process:
        """Runs `work`, which gets the ends of two pipes, in a fork. It must not keep the pipes of `others` open."""
        (requests, ask), (hear, answers) = os.pipe(), os.pipe()
        process = os.fork()
        if process == 0:
            for descriptor in [ask, hear, *(one for other in others for one in (other.requests, other.answers))]:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            os.setsid()
            os.environ.update(variables)
            # libprof.so and the programs may print.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            with contextlib.suppress(BaseException):
                work(requests, answers)
            # As at the end of a program, so that the library writes its last records.
            ctypes.CDLL(None).exit(0)
        os.close(requests)
        os.close(answers)
        return cls(process, ask, hear)

    def hear(self, until: float) -> dict:
        """The next answer. Raises Failed."""
        while b"\n" not in self.said:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise Failed("no answer in time")
            part = os.read(self.answers, 1 << 16)
            if not part:
                raise Failed("it ended")
            self.said += part
        line, _, self.said = self.said.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def turn(self, program: str) -> dict:
        """Figures of one turn. Raises Failed."""
        try:
            os.write(self.requests, f"{program}\n".encode())
        except OSError as error:
            raise Failed(f"it ended: {error}") from None
        return self.hear(time.monotonic() + TURN_WITHIN)

    def close(self) -> None:
        """Tells it to end."""
        os.close(self.requests)

    def wait(self, until: float) -> None:
        """Waits for its end, and kills it if that does not come."""
        descriptor = os.pidfd_open(self.process)
        if not select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process, signal.SIGKILL)
        os.close(descriptor)
        os.waitpid(self.process, 0)
        os.close(self.answers)


class Programs:
    """Starts processes of programs under tools."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        self.floor: pathlib.Path | None = None
        self.empty_kernels = suite.scratch / "libempty_kernels.so"

    def build(self) -> None:
        """Compiles the libraries; without one its tool or program is left out, with a printed reason."""
        try:
            self.floor = self.suite.compile_injection(HERE / "floor.cpp")
        except (FileNotFoundError, RuntimeError) as error:
            print(f"floor: left out, {error}", flush=True)
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        if pathlib.Path(nvcc).exists():
            run = self.suite.run("nvcc", [
                nvcc, "-O2", "-arch=native", "-shared", "-Xcompiler", "-fPIC", "-o", self.empty_kernels, HERE / "empty_kernels.cu"])
            print(run.stderr.strip()[-300:] if run.code else "built", flush=True)

    def folder(self) -> pathlib.Path:
        return pathlib.Path(tempfile.mkdtemp(dir=self.suite.scratch))

    def variables(self, tool: str, item: Item, folder: pathlib.Path) -> dict[str, str]:
        own = {"COST_EMPTY_KERNELS": str(self.empty_kernels)}
        if tool == "floor":
            by_nodes = {"FLOOR_RECORDS": "nodes"} if item.name == "decode" else {}
            return {"CUDA_INJECTION64_PATH": str(self.floor), **by_nodes, **own}
        if tool not in VARIABLES:
            return own
        return {
            "CUDA_INJECTION64_PATH": str(self.suite.library), "GPUWHY_REPORT": "off", "GPUWHY_CONTROL": str(folder),
            "GPUWHY_OUTPUT": str(folder / f"{item.name}-{tool}.gpuwhy"), "XDG_STATE_HOME": str(folder), **VARIABLES[tool], **own}

    def start(self, item: Item, tool: str, folder: pathlib.Path, others: list[Process]) -> Process:
        """A fork that sets up the programs of the item under the tool."""
        variables = self.variables(tool, item, folder)

        def work(requests: int, answers: int) -> None:
            import measured_programs

            be_called(f"{item.name}.py")
            with os.fdopen(requests) as read, os.fdopen(answers, "w") as write:
                measured_programs.take_turns(
                    list(item.programs), read, write, variables.get("CUDA_INJECTION64_PATH"), tool == "torch")

        return Process.forked(work, variables, others)

    def start_nsys(self) -> Process:
        """One process of all programs under nsys, which loads PyTorch itself."""
        folder = self.folder()
        fifos = [folder / "requests", folder / "answers"]
        for fifo in fifos:
            os.mkfifo(fifo)
        # Opened for both, so that neither side waits for the other.
        requests, answers = (os.open(fifo, os.O_RDWR | os.O_CLOEXEC) for fifo in fifos)
        names = [name for item in ITEMS for name in item.programs]
        command = [
            self.suite.nsys, "profile", *NSYS, "-o", str(folder / "report"), sys.executable, "-W", "ignore",
            str(HERE / "measured_programs.py"), *map(str, fifos), *names]
        environment = {**os.environ, **self.suite.nsys_environment(), "COST_EMPTY_KERNELS": str(self.empty_kernels)}
        with open(folder / "said", "wb") as said:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said, start_new_session=True)
        return Process(process.pid, requests, answers)


class Rounds:
    """Generations of processes, and their turns."""

    def __init__(self, programs: Programs, measured: Measured, out: pathlib.Path, without: set[str]) -> None:
        self.programs, self.measured, self.out, self.without = programs, measured, out, without
        self.nsys: Process | None = None

    def set_up(self, items: list[Item], folder: pathlib.Path) -> dict[tuple[str, str], Process]:
        """Starts all processes of a generation; those that are ready, by program and tool."""
        started = {}
        for item in items:
            for tool in item.tools:
                if tool not in self.without:
                    others = [*started.values(), *([self.nsys] if self.nsys else [])]
                    started[item, tool] = self.programs.start(item, tool, folder, others)
        self.all = list(started.values())
        until, ready = time.monotonic() + SET_UP_WITHIN, {}
        for (item, tool), process in started.items():
            try:
                answer = process.hear(until)
                for name, error in answer["errors"].items():
                    self.measured.failed(name, tool, error)
                ready |= {(name, tool): process for name in answer["ready"]}
            except Failed as error:
                self.measured.failed(item.name, tool, f"set-up: {error}")
        return ready

    def round(self, ready: dict[tuple[str, str], Process], number: int, choose: random.Random) -> None:
        """A turn of each program and tool."""
        programs = list(dict.fromkeys(name for name, _ in ready))
        for program in choose.sample(programs, len(programs)):
            tools = [tool for name, tool in ready if name == program and has_turn(tool, program, number)]
            figures = {}
            for tool in choose.sample(tools, len(tools)):
                try:
                    figures[tool] = ready[program, tool].turn(program)
                except (Failed, ValueError) as error:
                    del ready[program, tool]
                    self.measured.failed(program, tool, str(error))
                    print(f"{program} {tool}: {error}", flush=True)
            self.measured.add(program, figures)
        self.measured.save(self.out)

    def generation(self, items: list[Item], number: int, end: float) -> None:
        """Processes, and as many rounds as end in time, at least one."""
        began, folder = time.monotonic(), self.programs.folder()
        ready = self.set_up(items, folder)
        if self.nsys and number == 0:
            try:
                answer = self.nsys.hear(time.monotonic() + SET_UP_WITHIN)
                self.nsys_programs = answer["ready"]
                print(f"nsys: {answer}", flush=True)
            except Failed as error:
                self.measured.failed("all", "nsys", str(error))
                self.nsys_programs = []
        if self.nsys:
            ready |= {(name, "nsys"): self.nsys for name in self.nsys_programs}
        print(f"generation {number}: {len(ready)} programs set up after {time.monotonic() - began:.1f} s", flush=True)
        self.measured.begin_generation(number)
        choose, rounds = random.Random(number), []
        while not rounds or time.monotonic() + statistics.mean(rounds) + ENDS_WITHIN < end:
            start = time.monotonic()
            self.round(ready, len(rounds), choose)
            rounds.append(time.monotonic() - start)
        for process in self.all:
            process.close()
        until = time.monotonic() + ENDS_WITHIN
        for process in self.all:
            process.wait(until)
        self.measured.end_generation(number, time.monotonic() - began)
        self.measured.save(self.out)
        print(f"generation {number}: {len(rounds)} rounds of {min(rounds):.1f} to {max(rounds):.1f} s, {time.monotonic() - began:.1f} s", flush=True)
        for trace in folder.glob("decode-later*"):
            shutil.copyfile(trace, self.out.with_name(f"{self.out.stem}-{trace.name}"))
        shutil.rmtree(folder, ignore_errors=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=REPOSITORY / "target" / "release",
                        help="folder with gpuwhy and libprof.so")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FILE")
    parser.add_argument("--budget", type=float, default=260.0, metavar="SECONDS", help="for all generations (default 260)")
    parser.add_argument("--generations", type=int, default=GENERATIONS, help=f"default {GENERATIONS}")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", choices=[item.name for item in ITEMS],
                        help=", ".join(item.name for item in ITEMS))
    parser.add_argument("--without", action="append", default=[], metavar="TOOL")
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
    programs = Programs(suite)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        building = pool.submit(lambda: (programs.build(), machines.describe(suite))[1])
        # Once, here, for all forks.
        importlib.import_module("measured_programs")

        measured = Measured(building.result())
    gc.freeze()
    measured.begin()
    rounds = Rounds(programs, measured, options.out, {*options.without, *(() if programs.floor else ("floor",))})
    if suite.nsys and "nsys" not in options.without:
        rounds.nsys = programs.start_nsys()
    print(f"loaded after {time.monotonic() - began:.1f} s", flush=True)
    items = [item for item in ITEMS if not options.only or item.name in options.only]
    for number in range(options.generations):
        left = began + options.budget - time.monotonic()
        rounds.generation(items, number, time.monotonic() + left / (options.generations - number))
    if rounds.nsys:
        rounds.nsys.close()
        # It must have recorded something.
        until = time.monotonic() + NSYS_ENDS_WITHIN
        while not list(suite.scratch.glob("*/report.*")) and time.monotonic() < until:
            time.sleep(0.5)
        found = [f"{file.name}, {file.stat().st_size} bytes" for file in suite.scratch.glob("*/report.*")]
        print("nsys:", *(found or ["no report in time"]), flush=True)
        os.killpg(rounds.nsys.process, signal.SIGKILL)
    shutil.rmtree(suite.scratch, ignore_errors=True)
    print("\n" + measured.table())
    return 0 if not measured.errors else 1


if __name__ == "__main__":
    sys.exit(main())
