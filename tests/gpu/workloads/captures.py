"""Kernels inside ranges and between them; the program knows the number of each.

Each range has kernels of one name (addition) and its own number of them; between the ranges run kernels of another name
(multiplication). The program does not wait for the device at the edges: hundreds of kernels are queued when a range
begins and when it ends, so a tool that cuts by device time gets the numbers wrong.

    profiler    cudaProfilerStart and cudaProfilerStop around each range
    nvtx        an NVTX range named `capture`
    socket      `gpuwhy start` and `gpuwhy stop`, called by the program itself; needs --gpuwhy
    none        no edges: the same work, for comparison

Prints one line of JSON: the kernels of each range, and the milliseconds that beginning and ending each took.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time

import torch

# Kernels that are queued between two ranges. Well below the about 1000 launches that the driver queues.
BETWEEN = 300
# Elements of a tensor: some 20 us for a kernel on an H200, longer than its launch, so that the queue fills up.
ELEMENTS = 8 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("edges", choices=("profiler", "nvtx", "socket", "none"))
    parser.add_argument("--ranges", type=int, default=10)
    parser.add_argument("--gpuwhy", metavar="PATH")
    parser.add_argument("--apart", type=float, default=0.0, metavar="SECONDS", help="pause between two ranges")
    options = parser.parse_args()

    def command(word: str) -> None:
        subprocess.run([options.gpuwhy, word, str(os.getpid())], check=True, stdout=subprocess.DEVNULL)

    cudart = torch.cuda.cudart()
    begin, end = {
        "profiler": (cudart.cudaProfilerStart, cudart.cudaProfilerStop),
        "nvtx": (lambda: torch.cuda.nvtx.range_push("capture"), torch.cuda.nvtx.range_pop),
        "socket": (lambda: command("start"), lambda: command("stop")),
        "none": (lambda: None, lambda: None),
    }[options.edges]

    inside, outside = torch.zeros(ELEMENTS, device="cuda"), torch.ones(ELEMENTS, device="cuda")
    # Both kernels once, so that no range includes their loading.
    inside.add_(1.0)
    outside.mul_(1.0)
    torch.cuda.synchronize()

    kernels, begin_ms, end_ms = [], [], []
    for number in range(options.ranges):
        for _ in range(BETWEEN):
            outside.mul_(1.0)
        began = time.perf_counter()
        begin()
        begun = time.perf_counter()
        for _ in range(100 + number):
            inside.add_(1.0)
        ending = time.perf_counter()
        end()
        ended = time.perf_counter()
        kernels.append(100 + number)
        begin_ms.append(round((begun - began) * 1e3, 3))
        end_ms.append(round((ended - ending) * 1e3, 3))
        for _ in range(BETWEEN):
            outside.mul_(1.0)
        time.sleep(options.apart)
    torch.cuda.synchronize()
    print(json.dumps({"kernels": kernels, "begin_ms": begin_ms, "end_ms": end_ms}))


if __name__ == "__main__":
    main()
