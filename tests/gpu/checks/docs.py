"""Commands that users can type from README.md and docs/, as written there (documented.py): a line for each.

All lines of a page run one after the other in one folder, which has the files that they name: programs, and traces
recorded here. Lines that need the GPU to themselves come last.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

import documented
from checks import python
from documented import Line
from harness import Check, Mode, Result, Run, Suite, TimeUp, expect, skipped

LIMIT = 170.0
# Number of pages that run at once.
TOGETHER = 6
# Length of the trace of which the documents show the part from 10 s to 20 s, seconds.
LONG = 22.0
PID = "4711"
# Length of the training that commands capture, seconds: its step 12000 must come after the request.
BESIDE = 90.0
# Programs that define the names that a snippet uses.
PREAMBLES = {
    "with gpuwhy.profile(": "measured_part.py", "gpuwhy.open(": "traces.py", "def test_attention(": "judged.py", "%%gpuwhy": "cell.py"}
# Libraries that snippets may need and a host may lack; anything else that is missing is a failure.
OPTIONAL = re.compile(r"No module named '(?!gpuwhy)([\w.]+)'|(\w+) is not installed|(?:bash: line \d+: |: )([\w-]+): command not found")


def preamble(line: Line) -> str | None:
    """The program of workloads/documented that runs a snippet."""
    return next((name for begin, name in PREAMBLES.items() if begin in line.text), None)


class Folder:
    """Folder in which the lines of a page run."""

    def __init__(self, suite: Suite, given: pathlib.Path, name: str) -> None:
        self.suite, self.name = suite, name
        self.path = suite.folder(f"docs-{name}")
        shutil.copytree(given, self.path, dirs_exist_ok=True, symlinks=True)

    def run(self, name: str, command: str, seconds: float, interrupt: float | None = None, **more: str) -> Run:
        words = ["bash", "-o", "pipefail", "-c", command]
        if interrupt is not None:
            words = ["timeout", "--signal=INT", "--kill-after=20", str(interrupt), *words]
        within = ["bash", "-c", f"cd {shlex.quote(str(self.path))} && exec \"$@\"", "bash", *words]
        return self.suite.run(f"docs-{name}", within, Mode.BARE, self.environment(seconds, **more), LIMIT)

    def environment(self, seconds: float, **more: str) -> dict[str, str]:
        bin_folder = python.environment(self.suite) / "bin"
        return {
            "PATH": f"{self.path}:{bin_folder}:{os.environ['PATH']}", "TRAIN_SECONDS": str(seconds), "DISPLAY": "",
            # Commands see the programs of this page only.
            "GPUWHY_CONTROL": str(self.path), "MPLBACKEND": "agg", **python.replayed(), **more}


def prepare(suite: Suite) -> tuple[pathlib.Path, str]:
    """A folder with the files that `GIVEN` names, and a list of failures."""
    given = suite.folder("docs-given")
    (given / "target" / "release").mkdir(parents=True)
    for place in (given / "libprof.so", given / "target" / "release" / "libprof.so"):
        place.symlink_to(suite.library.resolve())
    programs = suite.workloads / "documented"
    for source, name in (("train.py", "train.py"), ("train.py", "train_fixed.py"), ("train.py", "script.py"), ("program.sh", "PROGRAM"), ("program.sh", "COMMAND"),
                         ("program.sh", "program")):
        shutil.copy(programs / source, given / name)
    made = Folder(suite, given, "recorded")
    recordings = {
        # Large layers, so that the long trace has few kernels.
        "long": ("TRAIN_WIDTH=8192 gpuwhy run --output long.gpuwhy -- python train.py", LONG),
        "ranks": ("for rank in 0 1; do RANK=$rank WORLD_SIZE=2 gpuwhy run --output rank$rank.gpuwhy -- python train.py || exit; done", 3.0),
        "captures": ("gpuwhy run --output captures.gpuwhy -c nvtx -p 'epoch@train' --capture-range-end repeat:3 -- python train.py", 6.0),
        "kineto": ("python train.py --torch-profiler trace.pt.trace.json.gz", 1.0),
    }
    with concurrent.futures.ThreadPoolExecutor(len(recordings)) as pool:
        runs = dict(zip(recordings, pool.map(lambda name: made.run(name, *recordings[name]), recordings)))
    wrong = "; ".join(f"{name}: {run.ending()}: {run.stderr.strip()[-300:]}" for name, run in runs.items() if run.code != 0)
    names = {"long": ["gpuwhy-4711.gpuwhy", "run.gpuwhy", "TRACE"], "rank0": ["rank0.gpuwhy", "A", "before.gpuwhy"],
             "rank1": ["rank1.gpuwhy", "B", "after.gpuwhy"]}
    # A recording has no ranges that could begin captures.
    names.setdefault("long" if python.replayed() else "captures", []).append("captures.gpuwhy")
    links = [(f"{source}.gpuwhy", target) for source, targets in names.items() for target in targets]
    links += [(rank, f"{folder}/{rank}") for folder in ("run1", "run2", "RUN") for rank in ("rank0.gpuwhy", "rank1.gpuwhy")]
    for source, target in [*links, ("trace.pt.trace.json.gz", "trace.pt.trace.json.gz")]:
        (given / target).parent.mkdir(exist_ok=True)
        if (made.path / source).exists():
            os.link(made.path / source, given / target)
        else:
            wrong += f"; there is no {source}"
    return given, wrong


def judge(line: Line, run: Run, name: str) -> Result:
    how = line.settings()
    said = run.stdout + run.stderr
    lacking = OPTIONAL.search(run.stderr)
    if run.code != 0 and lacking:
        return skipped(name, f"{line.text.splitlines()[0]}: {next(filter(None, lacking.groups()))} is not installed")
    codes = (*how.codes, 124, 130) if how.interrupt is not None else how.codes
    right = run.code in codes and re.search(how.says, said) is not None
    last = (run.stderr.strip() or run.stdout.strip()).splitlines()[-1:] or [""]
    detail = f"{line.text.splitlines()[0]}: {run.ending()}, {run.seconds:.0f} s"
    return expect(name, right, detail if right else f"{detail}, expected {how.says!r} and {codes}: {last[0][:300]}")


def snippet(folder: Folder, line: Line, name: str) -> Iterator[Result]:
    """Runs a snippet of Python with its program, which prints the outcome of each statement."""
    program = preamble(line)
    (folder.path / "snippet.txt").write_text(line.text)
    run = folder.run(name, f"python {folder.suite.workloads / 'documented' / str(program)} snippet.txt", 3.0)
    rows = [json.loads(row) for row in run.stdout.splitlines() if row.startswith('{"statement"')]
    for row in rows:
        place = f"docs.{dataclasses.replace(line, number=line.number + row['line'] - 1).place}"
        lacking = OPTIONAL.search(row["error"])
        if lacking:
            yield skipped(place, f"{row['statement']}: {next(filter(None, lacking.groups()))} is not installed")
        else:
            yield expect(place, not row["error"], f"{row['statement']}{': ' if row['error'] else ''}{row['error'][-400:]}")
    if not rows or run.code != 0:
        lacking = OPTIONAL.search(run.stderr)
        if lacking and not rows:
            yield skipped(f"docs.{line.place}", f"{next(filter(None, lacking.groups()))} is not installed")
        else:
            yield expect(f"docs.{line.place}", False, f"{run.ending()}: {(run.stdout + run.stderr).strip()[-400:]}")


def page(suite: Suite, given: pathlib.Path, lines: list[Line]) -> Iterator[Result]:
    """All lines of a page, in order."""
    folder = Folder(suite, given, re.sub(r"\W+", "-", lines[0].page))
    asked = Asked(folder)
    for line in lines:
        name = f"docs.{line.place}"
        try:
            results = list(snippet(folder, line, name)) if line.kind != "sh" else [command(folder, line, name, asked)]
        except TimeUp:
            results = [skipped(name, "the time was up")]
        except (OSError, RuntimeError) as error:
            results = [expect(name, False, f"{type(error).__name__}: {error}")]
        yield from results
    asked.end()


class Asked:
    """A training that commands capture; it begins with the first of them."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._process: subprocess.Popen | None = None
        self._pid: int | None = None

    def pid(self) -> int:
        """Raises RuntimeError if it does not start."""
        if self._process is None:
            self._begin()
        if self._pid is None:
            raise RuntimeError("the training did not appear in `gpuwhy top`")
        return self._pid

    def _begin(self) -> None:
        folder = self._folder
        line = ["bash", "-c", f"cd {shlex.quote(str(folder.path))} && exec gpuwhy run -c command -p step -- python train.py"]
        environment = folder.environment(BESIDE, TRAIN_WIDTH="256", TRAIN_PAUSE="0.002")
        self._process, _ = folder.suite.start("docs-asked", line, Mode.BARE, environment)
        folder.suite.at_end.append(self.end)
        end = time.monotonic() + BESIDE
        while time.monotonic() < end and self._process.poll() is None:
            # The program is a different process than the command.
            said = folder.run("top", "gpuwhy top --json", 1.0).stdout
            number = re.search(r'"(?:pid|process)": ?(\d+)', said)
            if number:
                self._pid = int(number[1])
                return
            time.sleep(0.5)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def command(folder: Folder, line: Line, name: str, asked: Asked) -> Result:
    """Runs a shell line."""
    text, how, interrupt = line.text, line.settings(), line.settings().interrupt
    if text.startswith("gpuwhy report --capture"):
        os.replace(folder.path / "captures.gpuwhy", folder.path / "gpuwhy-4711.gpuwhy")
    if re.search(rf"gpuwhy (start|stop|top --report|top --follow) ({PID}|--all)|^gpuwhy top --once$", text):
        text = text.replace(PID, str(asked.pid()))
    run = folder.run(name, text, how.seconds, interrupt)
    newest = sorted((folder.path / "traces").glob("[0-9]*.gpuwhy"))
    if newest and not (folder.path / "traces" / f"{PID}.gpuwhy").exists():
        os.link(newest[-1], folder.path / "traces" / f"{PID}.gpuwhy")
    return judge(line, run, name)


def docs(suite: Suite) -> Iterator[Result]:
    """The complete check."""
    if not python.environment(suite).exists():
        for result in python.install(suite):
            yield result
            if result.status.value != "PASS":
                return
    given, wrong = prepare(suite)
    # Lines that need missing files fail, the others do not.
    yield expect("docs.recorded", not wrong, wrong)
    chosen: dict[tuple[str, bool], list[Line]] = {}
    for line in documented.documented():
        if (why := line.not_run()) is not None:
            yield skipped(f"docs.{line.place}", f"{line.text.splitlines()[0]}: {why}")
            continue
        alone = line.settings().alone or "def test_" in line.text
        # The longest line must not delay the others of its page.
        key = f"{line.page} apart" if line.settings().seconds > 60 else line.page
        chosen.setdefault((key, alone), []).append(line)
    shared = sorted((item for item in chosen.items() if not item[0][1]), key=lambda item: -sum(line.settings().seconds for line in item[1]))
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        for results in pool.map(lambda item: list(page(suite, given, item[1])), shared):
            yield from results
    for (_, alone), lines in chosen.items():
        if alone:
            yield from page(suite, given, lines)


def checks() -> list[Check]:
    return [Check("docs", docs, credit=120.0)]
