"""Runs programs with and without gpuwhy, and keeps their output.

Every run gets its own folder, an environment without profiler variables, a time limit and a process group, so that one
check cannot disturb another and none can hang the suite. Everything that ran goes to one log file with its command
line, so a failure can be repeated by hand.
"""

from __future__ import annotations

import dataclasses
import enum
import glob
import json
import os
import pathlib
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent

# Maximum run of one program, seconds. The first import of PyTorch on a cold disk alone can take a minute.
STEP_LIMIT = 150.0

# Time that one check is assumed to need when deciding if it is still started, seconds.
SHORTEST_CHECK = 20.0

CUDA_FOLDERS = [os.environ.get("CUDA_HOME", "/usr/local/cuda"), "/usr/local/cuda", "/opt/cuda"]


class Status(enum.Enum):
    PASS = "PASS"
    FAIL = "FAIL"
    SKIPPED = "SKIPPED"


@dataclasses.dataclass(frozen=True)
class Result:
    """One line of the output."""

    status: Status
    name: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.status.value:7} {self.name}" + (f": {self.detail}" if self.detail else "")


def expect(name: str, condition: bool, detail: str = "") -> Result:
    """PASS or FAIL, with the same detail either way: a figure that passed is informative too."""
    return Result(Status.PASS if condition else Status.FAIL, name, detail)


def skipped(name: str, why: str) -> Result:
    return Result(Status.SKIPPED, name, why)


@dataclasses.dataclass(frozen=True)
class Check:
    """A function that yields results. Exclusive checks have the host to themselves, because they measure time. `credit`
    is the time that must be left to start it, seconds."""

    name: str
    function: Callable[[Suite], Iterator[Result]]
    exclusive: bool = True
    credit: float = SHORTEST_CHECK


class Mode(enum.Enum):
    """How a program is started."""

    BARE = "bare"
    VARIABLE = "variable"  # CUDA_INJECTION64_PATH=libprof.so program
    COMMAND = "command"  # gpuwhy run -- program


@dataclasses.dataclass(frozen=True)
class Run:
    """Outcome of a program."""

    command: list[str]
    folder: pathlib.Path
    code: int | None  # None: it ran into the time limit and was killed
    stdout: str
    stderr: str
    seconds: float

    def traces(self) -> list[pathlib.Path]:
        """Trace files that the run left behind under the default name."""
        return sorted(self.folder.glob("gpuwhy-*.gpuwhy"))

    def ending(self) -> str:
        """Its ending, in words."""
        if self.code is None:
            return "ran into the time limit"
        return f"exit code {self.code}" if self.code >= 0 else f"killed by {signal.Signals(-self.code).name}"


class BareRunFailed(Exception):
    """A program of the suite fails without gpuwhy."""


def ends_within(process: subprocess.Popen, seconds: float) -> bool:
    """Waits for the end of a process, which `Popen.wait` with a timeout notices up to 50 ms late."""
    if process.returncode is not None:
        return True
    descriptor = os.pidfd_open(process.pid)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


class TimeUp(Exception):
    """The time of the suite is up: no program is started any more, and running ones were ended."""


class Suite:
    """Paths of the suite, and the log."""

    def __init__(
            self, bin_folder: pathlib.Path, out: pathlib.Path, nsys: str | None, nsys_libraries: str | None,
            other_cupti: str | None = None, log_name: str = "log.txt") -> None:
        self.gpuwhy = bin_folder / "gpuwhy"
        self.library = bin_folder / "libprof.so"
        self.out = out
        self.nsys = nsys
        self.nsys_libraries = nsys_libraries and os.path.abspath(nsys_libraries)
        self.other_cupti = other_cupti and os.path.abspath(other_cupti)
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="gpuwhy-suite-"))
        self.microbench = self.scratch / "microbench"
        self.workloads = HERE / "workloads"
        # Names of the checks of this run: programs that start ahead of time belong to the next ones.
        self.selected: list[str] = []
        # Number of checks whose programs start together; None: as each kind of check specifies.
        self.together: int | None = None
        # True: traces of interventions are copied to the folder of the suite.
        self.keep_traces = False
        # From then on no program runs (`time.monotonic()`).
        self.deadline = float("inf")
        # Functions that end the programs that still wait when the suite ends.
        self.at_end: list[Callable[[], object]] = []
        self._measured = out / "measured.jsonl"
        self._measured.unlink(missing_ok=True)
        self._log = open(out / log_name, "w", encoding="utf-8", errors="replace")
        self._lock = threading.Lock()

    def compile(self, source: pathlib.Path, program: pathlib.Path) -> Run:
        """Compiles a CUDA program for the current device.

        Raises FileNotFoundError if there is no nvcc.
        """
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        if not pathlib.Path(nvcc).exists():
            raise FileNotFoundError("nvcc is neither on the PATH nor in /usr/local/cuda/bin")
        return self.run("nvcc", [nvcc, "-O2", "-arch=native", "-o", program, source])

    def compile_injection(self, source: pathlib.Path) -> pathlib.Path:
        """Compiles a library that the CUDA driver can load and that uses CUPTI.

        Raises FileNotFoundError without g++ or a CUDA toolkit, and RuntimeError when the source does not compile.
        """
        cuda = next((path for path in map(pathlib.Path, CUDA_FOLDERS) if (path / "include" / "cuda.h").exists()), None)
        if cuda is None or shutil.which("g++") is None:
            raise FileNotFoundError("it needs g++ and a CUDA toolkit")
        library, cupti = self.scratch / f"lib{source.stem}.so", cuda / "extras" / "CUPTI"
        folders = [cupti / "lib64", cuda / "lib64"]
        run = self.run(source.stem, [
            "g++", "-O2", "-shared", "-fPIC", f"-I{cupti}/include", f"-I{cuda}/include", "-o", library, source,
            *(f"-L{folder}" for folder in folders), "-lcupti", f"-Wl,-rpath,{':'.join(map(str, folders))}"])
        if run.code != 0:
            raise RuntimeError(f"it does not compile: {run.stderr.strip()[-200:]}")
        return library

    def build_microbench(self) -> Run:
        return self.compile(self.workloads / "microbench.cu", self.microbench)

    def log(self, text: str) -> None:
        with self._lock:
            self._log.write(text.rstrip("\n") + "\n")
            self._log.flush()

    def record(self, kind: str, fields: dict) -> None:
        """Appends a line to measured.jsonl, the source of the tables (gains_table.py)."""
        with self._lock, open(self._measured, "a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **fields}) + "\n")

    def keep_trace(self, name: str, run: Run) -> None:
        """Copies the largest trace of a run to the suite's folder, if traces are kept: the run's own folder is removed at
        the end."""
        traces = run.traces()
        if self.keep_traces and traces:
            folder = self.out / "traces"
            folder.mkdir(exist_ok=True)
            shutil.copyfile(max(traces, key=lambda path: path.stat().st_size), folder / f"{name}.gpuwhy")

    def recorded(self, kind: str) -> list[dict]:
        """Lines of this run."""
        return [line for line in read_lines(self._measured) if line["kind"] == kind]

    def folder(self, name: str) -> pathlib.Path:
        """A fresh folder for one run."""
        return pathlib.Path(tempfile.mkdtemp(prefix=name.replace("/", "_") + "-", dir=self.scratch))

    def environment(self, mode: Mode, extra: dict[str, str] | None = None) -> dict[str, str]:
        """The caller's environment without profiler variables, with those of the mode, then `extra`."""
        environment = {
            name: value for name, value in os.environ.items()
            if not name.startswith("GPUWHY_") and name not in (
                "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NCCL_PROFILER_PLUGIN")}
        if mode is Mode.VARIABLE:
            environment["CUDA_INJECTION64_PATH"] = str(self.library)
            environment["GPUWHY_REPORT"] = "off"
        # Runs of this suite must not enter the user's history.
        environment["XDG_STATE_HOME"] = str(self.scratch / "state")
        environment.update(extra or {})
        return environment

    def nsys_environment(self) -> dict[str, str]:
        """Variables for nsys's importer, which loads libdw and libelf; a bare host may lack them. They do not affect
        the program."""
        if not self.nsys_libraries:
            return {}
        return {"LD_LIBRARY_PATH": ":".join(filter(None, [self.nsys_libraries, os.environ.get("LD_LIBRARY_PATH")]))}

    def command(self, mode: Mode, command: Sequence[str | os.PathLike[str]]) -> list[str]:
        words = [os.fspath(word) for word in command]
        return [str(self.gpuwhy), "run", "--", *words] if mode is Mode.COMMAND else words

    def start(
            self, name: str, command: Sequence[str | os.PathLike[str]], mode: Mode,
            extra: dict[str, str] | None = None, stdin: int = subprocess.DEVNULL,
            pass_fds: Sequence[int] = ()) -> tuple[subprocess.Popen, pathlib.Path]:
        """Starts a program and leaves it running; its output goes to files in the folder returned.

        Raises TimeUp.
        """
        if time.monotonic() >= self.deadline:
            raise TimeUp
        folder = self.folder(name)
        words = self.command(mode, command)
        with open(folder / "stdout", "wb") as stdout, open(folder / "stderr", "wb") as stderr:
            process = subprocess.Popen(
                words, cwd=folder, env=self.environment(mode, extra), stdin=stdin, stdout=stdout, stderr=stderr,
                start_new_session=True, pass_fds=tuple(pass_fds))
        return process, folder

    def finish(
            self, process: subprocess.Popen, folder: pathlib.Path, began: float, limit: float = STEP_LIMIT) -> Run:
        """Waits for a started program, kills its process group at the limit, and logs it.

        Raises TimeUp if the suite's time ended it.
        """
        end = min(began + limit, self.deadline)
        has_ended = ends_within(process, max(0.0, end - time.monotonic()))
        seconds = time.monotonic() - began
        if not has_ended:
            os.killpg(process.pid, signal.SIGKILL)
        exit_code = process.wait()
        code = exit_code if has_ended else None
        run = Run(
            list(process.args), folder, code, (folder / "stdout").read_text(errors="replace"),
            (folder / "stderr").read_text(errors="replace"), seconds)
        self.log(
            f"\n$ {shlex.join(run.command)}\n# in {folder}, {run.ending()} after {run.seconds:.1f} s\n"
            f"{tail(run.stdout, 'stdout')}{tail(run.stderr, 'stderr')}")
        if code is None and end == self.deadline:
            raise TimeUp
        return run

    def run(
            self, name: str, command: Sequence[str | os.PathLike[str]], mode: Mode = Mode.BARE,
            extra: dict[str, str] | None = None, limit: float = STEP_LIMIT) -> Run:
        """Runs a program to its end."""
        began = time.monotonic()
        process, folder = self.start(name, command, mode, extra)
        return self.finish(process, folder, began, limit)

    def bare(self, name: str, command: Sequence[str | os.PathLike[str]]) -> Run:
        """Runs a program without gpuwhy, as the reference for a traced run.

        Raises BareRunFailed if it does not end with 0: comparing two failures would prove nothing.
        """
        run = self.run(f"{name}-bare", command)
        if run.code != 0:
            lines = run.stderr.strip().splitlines()
            raise BareRunFailed(f"fails without gpuwhy: {run.ending()}: {lines[-1] if lines else ''}")
        return run

    def python(self, script: str, *arguments: str) -> list[str]:
        """The command line of one of the workloads."""
        return [sys.executable, str(self.workloads / script), *arguments]


def read_lines(path: pathlib.Path) -> list[dict]:
    """Lines of a file of measurements; empty if there is no such file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tail(text: str, label: str, lines: int = 40) -> str:
    """The last lines of an output, each marked with its source."""
    kept = text.splitlines()
    left_out = [f"{label}| ... {len(kept) - lines} lines left out"] if len(kept) > lines else []
    return "".join(line + "\n" for line in left_out + [f"{label}| {line}" for line in kept[-lines:]])


def find_nsys() -> str | None:
    """nsys on the PATH, or the copy in Nsight Compute; None if there is none."""
    carried = sorted(glob.glob("/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys"))
    return os.environ.get("GPUWHY_NSYS") or shutil.which("nsys") or (carried[-1] if carried else None)
