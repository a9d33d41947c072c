"""Description of the machine of a measurement: hardware, driver and the versions of all software involved.

Two measurements may share a table only if these agree (measured.py). Unavailable values are left empty and printed as
unknown.
"""

from __future__ import annotations

import os
import pathlib
import platform
import re
import shutil
import sys

from harness import Suite


def first_line(suite: Suite, *command: str | pathlib.Path, pattern: str = "(.+)") -> str:
    """First match in the stdout of a command; empty when it cannot be run or there is no match."""
    try:
        run = suite.run("version", command)
    except OSError:
        return ""
    match = re.search(pattern, run.stdout)
    return match[1].strip() if run.code == 0 and match else ""


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.partition(':')[2].strip()}, {len(os.sched_getaffinity(0))} cores"
    return f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores"


# Run by the Python that trains. Each program has its own libcupti, the small ones that of the toolkit: their API
# versions are in the rows of gpuwhy.
PYTORCH = """
import importlib.metadata, torch, torchvision
cupti = [f"{d.name} {d.version}" for d in importlib.metadata.distributions() if d.name.startswith("nvidia-cuda-cupti")]
print(torch.__version__, "torchvision", torchvision.__version__, *cupti)
"""


def describe(suite: Suite) -> dict[str, str]:
    """Values by their names in the head of the table. Importing PyTorch here also fills the page cache for the programs."""
    return {
        "gpu": first_line(suite, "nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
        "driver": first_line(suite, "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "CUDA of the driver": first_line(suite, "nvidia-smi", pattern=r"CUDA Version: *([\d.]+)"),
        "nvcc": first_line(suite, shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc", "--version", pattern=r"release ([\d.]+)"),
        "PyTorch": first_line(suite, sys.executable, "-c", PYTORCH),
        "nsys": first_line(suite, suite.nsys, "--version", pattern=r"version (\S+)") if suite.nsys else "",
        "Python": platform.python_version(),
        "kernel": platform.release(),
        "processor": processor(),
        "gpuwhy": first_line(suite, suite.gpuwhy, "--version", pattern="gpuwhy (.+)"),
    }
