"""Tests of the package in separate processes, whose GPU is a recording (testing/cupti-replay).

GPUWHY_TEST_BINARIES is the folder of cargo's output (target/debug). GPUWHY_TEST_INSTALLED=1 tests the installed wheel
instead of the sources; then only the replay library comes from that folder.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARIES = pathlib.Path(os.environ.get("GPUWHY_TEST_BINARIES", ROOT / "target" / "debug"))
INSTALLED = os.environ.get("GPUWHY_TEST_INSTALLED") == "1"
FIXTURES = ROOT / "testing" / "fixtures"
if not INSTALLED:
    sys.path.insert(0, str(ROOT / "python"))
# Start of every program of these tests.
PLAY = """
import ctypes, os, sys
def play(millis=None):
    library = ctypes.CDLL(os.environ["GPUWHY_CUPTI_PATH"])
    until = ctypes.c_uint64(2**64 - 1 if millis is None else millis * 1000000)
    assert library.gpuwhy_replay_play(until) == 0
def violation():
    library = ctypes.CDLL(os.environ["GPUWHY_CUPTI_PATH"])
    text = ctypes.create_string_buffer(4096)
    library.gpuwhy_replay_violation.restype = ctypes.c_size_t
    length = library.gpuwhy_replay_violation(ctypes.c_size_t(0), text, ctypes.c_size_t(4096))
    return text.raw[:length].decode()
"""


def built(name: str) -> pathlib.Path:
    places = [BINARIES / "deps" / name, BINARIES / name]
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(f"{name} was not built: run `cargo build` and `cargo build -p cupti-replay -p gpuwhy-inject`")


def environment(fixture: str = "mlp", **more: str) -> dict[str, str]:
    """Environment of a program whose GPU is a recording."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("GPUWHY_") and name not in (
                "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NCCL_PROFILER_PLUGIN", "XDG_STATE_HOME")}
    kept.update(GPUWHY_CUPTI_PATH=str(built("libcupti_replay.so")), GPUWHY_EXIT_TIMEOUT="60s",
                GPUWHY_CUDA_GRAPH_TRACE="node", GPUWHY_REPLAY=str(FIXTURES / f"{fixture}.cupti.zst"))
    # As in an activated environment, or next to the sources.
    kept["PATH"] = f"{pathlib.Path(sys.executable).parent if INSTALLED else BINARIES}{os.pathsep}{kept['PATH']}"
    if not INSTALLED:
        kept["PYTHONPATH"] = str(ROOT / "python")
    kept.update(more)
    return kept


class Program:
    """Runs Python programs in a separate folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def __call__(self, text: str, *arguments: str, fixture: str = "mlp", code: int = 0, **more: str) -> subprocess.CompletedProcess:
        path = self.folder / "program.py"
        path.write_text(PLAY + textwrap.dedent(text))
        return self.run([sys.executable, str(path), *arguments], fixture=fixture, code=code, **more)

    def run(self, line: list, fixture: str = "mlp", code: int = 0, **more: str) -> subprocess.CompletedProcess:
        cache = {"XDG_CACHE_HOME": str(self.folder), "HOME": str(self.folder)}
        done = subprocess.run([str(part) for part in line], cwd=self.folder, capture_output=True, text=True, timeout=300, check=False,
                              env=environment(fixture, **cache, **more))
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done


@pytest.fixture
def program(tmp_path: pathlib.Path) -> Program:
    return Program(tmp_path)


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A trace of the recorded MLP training."""
    folder = tmp_path_factory.mktemp("trace")
    Program(folder)("""
        import gpuwhy
        with gpuwhy.profile("mlp.gpuwhy", quiet=True):
            play()
        """)
    return folder / "mlp.gpuwhy"
