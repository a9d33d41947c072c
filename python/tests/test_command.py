"""`python -m gpuwhy`, and how the module, the command and the library find each other."""

from __future__ import annotations

import os
import shutil
import stat
import sys

import pytest

from conftest import BINARIES, INSTALLED, ROOT, built
from gpuwhy.__main__ import command_line

KNOWN = {"report", "run", "top"}


@pytest.mark.parametrize("given, expected", [
    (["train.py", "--lr", "1"], ["run", "--", sys.executable, "train.py", "--lr", "1"]),
    (["-m", "pkg.mod", "-o", "x"], ["run", "--", sys.executable, "-m", "pkg.mod", "-o", "x"]),
    (["--live", "2s", "-m", "mod"], ["run", "--live", "2s", "--", sys.executable, "-m", "mod"]),
    (["--live=2s", "--force", "train.py"], ["run", "--live=2s", "--force", "--", sys.executable, "train.py"]),
    (["-o", "report", "train.py"], ["run", "-o", "report", "--", sys.executable, "train.py"]),
    (["--live", "1s", "--", "./program"], ["run", "--live", "1s", "--", "./program"]),
    (["report", "a.gpuwhy"], ["report", "a.gpuwhy"]),
    (["./report"], ["run", "--", sys.executable, "./report"]),
    (["--version"], ["--version"]),
    ([], []),
])
def test_what_is_called(given, expected):
    assert command_line(given, KNOWN, {"--live", "-o"}) == expected


def test_a_program_runs_as_itself(program):
    (program.folder / "train.py").write_text(
        "import os, sys; print(sys.argv[1:], os.environ['CUDA_INJECTION64_PATH']); sys.exit(3)")
    done = program.run([sys.executable, "-m", "gpuwhy", "--report", "off", "train.py", "--lr", "3e-4"], code=3)
    assert done.stdout.startswith("['--lr', '3e-4'] /") and "libprof.so" in done.stdout
    said = program.run([sys.executable, "-m", "gpuwhy", "--version"]).stdout
    assert said.startswith("gpuwhy 0.")
    assert "EXIT CODES" in program.run([sys.executable, "-m", "gpuwhy", "report", "--help"]).stdout
    done = program.run([sys.executable, "-m", "gpuwhy", "--no-such-option", "train.py"], code=2)
    assert "no-such-option" in done.stderr


@pytest.mark.skipif(INSTALLED, reason="the wheel has its own command")
def test_versions_that_differ_are_said_with_both_paths(program, tmp_path):
    module = tmp_path / "older" / "gpuwhy"
    shutil.copytree(ROOT / "python" / "gpuwhy", module, ignore=shutil.ignore_patterns("__pycache__"))
    init = module / "__init__.py"
    init.write_text(init.read_text().replace('__version__ = "', '__version__ = "9.'))
    path = str(module.parent)
    done = program("""
        import gpuwhy
        try:
            gpuwhy.runs(".").text
        except gpuwhy.VersionMismatch as error:
            print(error)
        os.environ["GPUWHY_LIB"] = sys.argv[1]
        try:
            gpuwhy.profile(quiet=True).start()
        except gpuwhy.VersionMismatch as error:
            print(error)
        """, built("libprof.so"), PYTHONPATH=path)
    command, library = done.stdout.splitlines()
    assert str(BINARIES) in command and path in command and "9.0" in command, done.stdout
    assert "libprof.so" in library and path in library, done.stdout
    done = program.run([sys.executable, "-m", "gpuwhy", "--version"], code=125, PYTHONPATH=path)
    assert "versions differ" in done.stderr


@pytest.mark.skipif(INSTALLED, reason="the wheel has its own command")
def test_what_is_missing_is_said(program, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    script = empty / "gpuwhy"
    script.write_text("#!/bin/sh\necho somebody else's\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    done = program("""
        import gpuwhy
        try:
            gpuwhy.open(__file__).report
        except gpuwhy.NotFound as error:
            print(error)
        """, PATH=str(empty))
    assert "is not installed" in done.stdout and str(empty) in done.stdout
    done = program("""
        import gpuwhy
        for wrong in (gpuwhy.profile().start, gpuwhy.prepare, gpuwhy.environment):
            try:
                wrong()
            except gpuwhy.NotFound as error:
                print(error)
        """, GPUWHY_LIB="/nowhere/libprof.so")
    assert done.stdout.count("GPUWHY_LIB names /nowhere/libprof.so") == 3


@pytest.mark.skipif(INSTALLED, reason="only of the sources")
def test_target_folders_have_the_command_beside_the_module(program, tmp_path):
    # The layout of `pip install --target`.
    target = tmp_path / "target"
    shutil.copytree(ROOT / "python" / "gpuwhy", target / "gpuwhy", ignore=shutil.ignore_patterns("__pycache__"))
    (target / "bin").mkdir()
    (target / "gpuwhy" / "_lib").mkdir()
    os.symlink(BINARIES / "gpuwhy", target / "bin" / "gpuwhy")
    shutil.copy(built("libprof.so"), target / "gpuwhy" / "_lib")
    done = program("""
        from gpuwhy import _find
        print(_find.command(), _find.library())
        """, PYTHONPATH=str(target), PATH="/usr/bin")
    assert done.stdout.split() == [str(target / "bin" / "gpuwhy"), str(target / "gpuwhy" / "_lib" / "libprof.so")]


