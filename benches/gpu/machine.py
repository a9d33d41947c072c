"""Description of the machine of a measurement: hardware, driver and the versions of all software involved.

Two measurements may share a table only if these agree (measured.py). Unavailable values are left empty and printed as
unknown.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform
import re
import shutil

from harness import Suite

# Each program has its own libcupti: empty kernels that of the toolkit, the others that of this list.
PACKAGES = ("torch", "torchvision", "transformers", "nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12")


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


def packages() -> str:
    installed = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
    return ", ".join(f"{name} {installed[name]}" for name in PACKAGES if name in installed)


def describe(suite: Suite) -> dict[str, str]:
    """Values by their names in the head of the table."""
    return {
        "gpu": first_line(suite, "nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
        "driver": first_line(suite, "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "nvcc": first_line(suite, shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc", "--version", pattern=r"release ([\d.]+)"),
        "packages": packages(),
        "nsys": first_line(suite, suite.nsys, "--version", pattern=r"version (\S+)") if suite.nsys else "",
        "Python": platform.python_version(),
        "kernel": platform.release(),
        "processor": processor(),
        "gpuwhy": first_line(suite, suite.gpuwhy, "--version", pattern="gpuwhy (.+)"),
    }
