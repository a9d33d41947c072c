"""Another profiler in a process that gpuwhy traces: both need CUPTI, which serves one tool per process.

    torch     torch.profiler
    proton    triton.profiler
    jax       jax.profiler.trace

Work, then the other profiler around work, then work again, twice; each part is long enough for gpuwhy to notice. The
profiler's result, or its failure, goes to stderr, because it may be empty under another tool: a program that lets its
profiler fail ends as its author wishes. stdout has only output that must not depend on it. Exit status 77: the profiler
is not installed.

The last line on stderr is JSON: kernels launched `alone` and `beside` the profiler, and the copies of `libcupti` in the
process.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

# Seconds of each part: gpuwhy notices within 0.2 s, and takes CUPTI again half a second after the other tool is done.
PART = 1.0
NOT_INSTALLED = 77


class Torch:
    """Work by PyTorch. `kernels` counts the launches."""

    def __init__(self) -> None:
        import torch

        self.torch, self.kernels = torch, 0
        self.values = torch.zeros(1 << 16, device="cuda")
        torch.cuda.synchronize()

    def work(self) -> None:
        for _ in range(20):
            self.values.add_(1.0)
        self.torch.cuda.synchronize()
        self.kernels += 20

    def result(self) -> float:
        return self.values[0].item()

    @contextlib.contextmanager
    def profiler(self, report: list[str]) -> Iterator[None]:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            yield
        seen = sum(event.device_type == self.torch.autograd.DeviceType.CUDA for event in profiler.events())
        report.append(f"{seen} kernels")


class Proton(Torch):
    @contextlib.contextmanager
    def profiler(self, report: list[str]) -> Iterator[None]:
        import triton.profiler as proton

        file = f"{tempfile.mkdtemp()}/proton"
        proton.start(file)
        yield
        proton.finalize()

        def count(node: object) -> int:
            if not isinstance(node, dict):
                return 0
            children = node.get("children", [])
            return int(node.get("metrics", {}).get("count", 0)) + sum(count(child) for child in children)

        with open(f"{file}.hatchet", encoding="utf-8") as tree:
            report.append(f"{sum(count(node) for node in json.load(tree))} kernels")


class Jax:
    def __init__(self) -> None:
        import jax

        self.jax, self.kernels = jax, 0
        self.step = jax.jit(lambda values: jax.numpy.sin(values) + 1.0)
        self.values = self.step(jax.numpy.ones(1 << 16))
        self.values.block_until_ready()

    def work(self) -> None:
        for _ in range(20):
            self.values = self.step(self.values)
        self.values.block_until_ready()
        self.kernels += 20

    def result(self) -> float:
        return round(float(self.values[0]), 3)

    @contextlib.contextmanager
    def profiler(self, report: list[str]) -> Iterator[None]:
        folder = tempfile.mkdtemp()
        with self.jax.profiler.trace(folder):
            yield
        files = [open(path, "rb").read() for path in glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)]
        report.append(f"{sum(map(len, files))} bytes in {len(files)} files")


PROGRAMS: dict[str, Callable[[], Torch | Jax]] = {"torch": Torch, "proton": Proton, "jax": Jax}
PROFILERS = {"torch": "torch.profiler", "proton": "triton.profiler", "jax": "jax.profiler"}


def cupti_copies() -> list[str]:
    """Files of libcupti that are mapped into this process. Each is an independent CUPTI."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/libcupti.so" in line}
    return sorted(paths)


def worked(program: Torch | Jax) -> int:
    """Works for one part; returns the number of kernels launched."""
    before, end = program.kernels, time.monotonic() + PART
    while time.monotonic() < end:
        program.work()
        time.sleep(0.002)
    return program.kernels - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=PROGRAMS)
    options = parser.parse_args()
    try:
        __import__(PROFILERS[options.tool])
    except ImportError as error:
        print(error, file=sys.stderr)
        return NOT_INSTALLED
    program = PROGRAMS[options.tool]()
    alone, beside = worked(program), 0
    for _ in range(2):
        report: list[str] = []
        before = program.kernels
        try:
            with program.profiler(report):
                beside += worked(program)
        except Exception as error:  # Any error that a refused profiler raises.
            report.append(f"refused: {type(error).__name__}: {error}")
            beside += program.kernels - before
        print(f"{options.tool} {'; '.join(report)}", file=sys.stderr)
        alone += worked(program)
    print(json.dumps({"alone": alone, "beside": beside, "libcupti": cupti_copies()}), file=sys.stderr)
    print("finite", program.result() == program.result())
    return 0


if __name__ == "__main__":
    sys.exit(main())
