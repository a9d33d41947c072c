"""Small programs of widely used libraries, one name each: `python programs.py NAME [--repeat N]`.

Each runs a loop for a fixed number of steps and prints one number that the steps computed, to three digits, so that a
traced run can be compared with a bare one. The duration of the loop goes to stderr as `loop SECONDS`. Exit status 77: a
library that the program needs is not installed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable

NOT_INSTALLED = 77
# A process must not take most of the device: several run at a time.
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.05")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Modules that contain the programs, by the start of their names.
FAMILIES = ("jax", "torch", "hub", "array", "ending")


# Factor on the usual number of steps.
repeats = 1


def loop(steps: int, step: Callable[[int], object], settle: Callable[[], object], warm: int = 3) -> None:
    """Runs the steps, and reports the duration of those after the first ones."""
    steps = warm + repeats * (steps - warm)
    for index in range(warm):
        step(index)
    settle()
    began = time.monotonic()
    for index in range(warm, steps):
        step(index)
    settle()
    print(f"loop {time.monotonic() - began:.4f}", file=sys.stderr, flush=True)


def say(value: object) -> None:
    """Prints the number that must be the same in every run."""
    print(f"result {float(value):.3g}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="such as jax.adam")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run N times as many steps")
    options = parser.parse_args()
    global repeats
    name, repeats = options.name, options.repeat
    family, _, program = name.partition(".")
    try:
        importlib.import_module(f"{family}_programs").PROGRAMS[program]()
    except ImportError as error:
        print(f"not installed: {error}", file=sys.stderr)
        sys.exit(NOT_INSTALLED)


if __name__ == "__main__":
    sys.modules["programs"] = sys.modules["__main__"]
    main()
