"""Traces: reports, tables, SQL, pages and comparisons, all made by the command."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Mapping

from . import _command, _find
from ._errors import CommandFailed
from ._report import Report
from ._tables import Table


class Trace:
    """A trace of gpuwhy, torch.profiler or Nsight Systems (SQLite)."""

    def __init__(self, path: str | os.PathLike[str], *, pid: int | None = None, capture: int | None = None) -> None:
        self.path = Path(path)
        self._options: list[str] = []
        if pid is not None:
            self._options += ["--pid", str(pid)]
        self._capture = [] if capture is None else ["--capture", str(capture)]
        # For a session that has just ended: the report adds a line to the history, unless GPUWHY_HISTORY is off.
        self._history: list[str] = []

    @classmethod
    def of_session(cls, path: str | os.PathLike[str]) -> Trace:
        """The trace of a session that has just ended and belongs in the history."""
        trace = cls(path)
        trace._history = ["--history"]
        return trace

    @functools.cached_property
    def report(self) -> Report:
        """The report. Does not use the stored report of a long run: figures and text come from the same computation.

        Raises CommandFailed when the trace cannot be read.
        """
        chosen: list[str | os.PathLike[str]] = [*self._options, *self._capture, "--", self.path]
        raw: Mapping[str, Any] = _command.as_json(["report", "--json", *self._history, *chosen])
        return Report(raw, lambda: _command.call(["report", *chosen])[1], self._expect)

    def _expect(self, limits: Mapping[str, Any]) -> None:
        from ._check import judge

        judge(self.path, limits)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables for `table` and `sql` (`gpuwhy query --tables` lists their columns)."""
        lines = _command.call(["query", "--tables"])[1].splitlines()
        names = (line.split(":", 1)[0] for line in lines if line and not line.startswith(" ") and ":" in line)
        return tuple(name for name in names if name != "every table")

    def table(self, name: str) -> Table:
        """A complete table, such as `kernels`. `to_parquet` writes it without passing through Python."""
        if name not in self.tables:
            raise KeyError(f"no table {name!r}; there are {', '.join(self.tables)}")
        rows = self.sql(f'SELECT * FROM "{name}"')
        return Table(rows, lambda: self._parquet(name))

    def sql(self, query: str) -> Table:
        """Rows of a query in SQLite's dialect over the tables of this trace.

        Raises CommandFailed when the query is wrong.
        """
        return Table(_command.as_json(["query", "--json", "--", self.path, query]))

    def _parquet(self, name: str) -> Path:
        folder = temporary_folder()
        self.export("parquet", folder)
        found = sorted(folder.rglob(f"{name}.parquet"))
        if not found:
            raise LookupError(f"the trace has no rows for the table {name!r}")
        return found[0]

    def export(self, to: str, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> None:
        """Converts the trace: `chrome`, `perfetto`, `sqlite`, `json` or `parquet` (a folder).

        Raises CommandFailed when it cannot be written.
        """
        arguments: list[str | os.PathLike[str]] = ["export", "--to", to, *self._options]
        if path is not None:
            arguments.append(f"--output={os.fspath(path)}")
        _command.call([*arguments, *(["--force"] if force else []), "--", self.path])

    def html(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes the page.

        Raises CommandFailed, such as when the file exists and `force` is not given.
        """
        _command.call(["report", f"--html={os.fspath(path)}", *(["--force"] if force else []), *self._options, "--", self.path])
        return Path(path)

    def view(self) -> None:
        """Opens the page in a browser; without a display its path is printed."""
        _view("report", [self.path])

    def __repr__(self) -> str:
        return f"<Trace {self.path}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from .jupyter import trace_bundle

        return trace_bundle(self)


class Run:
    """The ranks of a job: the traces of a folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder)

    @functools.cached_property
    def raw(self) -> Mapping[str, Any]:
        """Output of `gpuwhy merge --json`."""
        found: Mapping[str, Any] = _command.as_json(["merge", "--json", "--", self.path])
        return found

    @property
    def ranks(self) -> Table:
        """A row for each rank."""
        return Table(self.raw.get("ranks") or [])

    @property
    def straggler(self) -> Any:
        """The rank that the others wait for; None if there is none."""
        return self.raw.get("straggler")

    @property
    def text(self) -> str:
        """The comparison as text."""
        return _command.call(["merge", "--", self.path])[1]

    def sql(self, query: str) -> Table:
        """Rows of a query over all ranks."""
        return Table(_command.as_json(["query", "--json", "--", self.path, query]))

    def view(self) -> None:
        """Opens the page of all ranks in a browser."""
        _view("merge", [self.path])


class Diff:
    """The comparison of two runs of one program."""

    def __init__(self, a: Path, b: Path) -> None:
        self._paths = (a, b)
        self.raw: Mapping[str, Any] = _command.as_json(["diff", "--json", "--", a, b])
        """What `gpuwhy diff --json` says."""

    @property
    def refused(self) -> str | None:
        """Reason why the runs are not comparable; None if they are."""
        refused: str | None = self.raw.get("refused")
        return refused

    @property
    def devices(self) -> Table:
        """A row for each device: `change_ns`, `outcome`, `recordings_p` and the changes."""
        return Table(self.raw.get("devices") or [])

    @property
    def text(self) -> str:
        """The comparison as text."""
        return _command.call(["diff", "--", *self._paths])[1]

    def html(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes the page of both runs."""
        _command.call(["diff", f"--html={os.fspath(path)}", *(["--force"] if force else []), "--", *self._paths])
        return Path(path)

    def view(self) -> None:
        """Opens the page of both runs in a browser."""
        _view("diff", list(self._paths))

    def __str__(self) -> str:
        return self.text


def open(path: str | os.PathLike[str], *, pid: int | None = None, capture: int | None = None) -> Trace:
    """A trace file. `pid` chooses a process of an Nsight Systems or torch.profiler file, `capture` a capture.

    Raises FileNotFoundError when there is none.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"{os.fspath(path)}: there is no such trace")
    return Trace(path, pid=pid, capture=capture)


def runs(folder: str | os.PathLike[str]) -> Run:
    """The traces of the ranks of a job, in one folder.

    Raises NotADirectoryError when `folder` is not a folder.
    """
    if not Path(folder).is_dir():
        raise NotADirectoryError(f"{os.fspath(folder)} is no folder of traces")
    return Run(folder)


def diff(a: str | os.PathLike[str] | Trace, b: str | os.PathLike[str] | Trace) -> Diff:
    """Compares the run before a change with the run after it.

    Raises CommandFailed when a trace cannot be read.
    """
    paths = [trace.path if isinstance(trace, Trace) else Path(trace) for trace in (a, b)]
    return Diff(paths[0], paths[1])


def _view(verb: str, paths: list[Path]) -> None:
    # The command passes the page to the browser and ends; its output is for the user.
    line = [str(_find.command()), verb, "--open", "--", *(str(path) for path in paths)]
    code = subprocess.run(line, env=_command.environment(), check=False).returncode
    if code not in (0, 1):
        raise CommandFailed(code, f"gpuwhy {verb} --open failed; stderr says why")


@functools.lru_cache(maxsize=None)
def _temporary_root() -> Path:
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="gpuwhy-"))
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def temporary_folder() -> Path:
    """A new folder that is deleted when this process ends."""
    return Path(tempfile.mkdtemp(dir=_temporary_root()))
