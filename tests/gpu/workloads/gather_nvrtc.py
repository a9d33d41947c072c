"""The kernels of gather_kernels.cuh, compiled by nvrtc with line information: gather_nvrtc.py SECONDS."""

from __future__ import annotations

import ctypes
import pathlib
import sys
import time

import torch
from nvrtc import Module

SOURCE = pathlib.Path(__file__).resolve().parent / "gather_kernels.cuh"
COUNT, THREADS = 128 << 20, 1 << 20


def main() -> None:
    source = torch.zeros(COUNT, device="cuda")
    result = torch.zeros(THREADS, device="cuda")
    module = Module(SOURCE.read_bytes(), str(SOURCE))
    count, loops = ctypes.c_uint(COUNT), ctypes.c_int(200)
    end, rounds = time.monotonic() + float(sys.argv[1]), 0
    while time.monotonic() < end:
        module.launch("k_gather", (THREADS // 256, 1, 1), (256, 1, 1), source, result, count)
        module.launch("k_barrier", (THREADS // 1024, 1, 1), (1024, 1, 1), result, loops)
        torch.cuda.synchronize()
        rounds += 1
    print("done" if rounds else "no round")


if __name__ == "__main__":
    main()
