"""Kernels of libraries and of known_kernels.cuh, each once per step: known_kernels.py SECONDS

Matrix products of three shapes, attention, softmax, layer norm, a copy, bank conflicts, uncoalesced loads, a tail, few
blocks, spills and divergence. Prints the number of steps.
"""

from __future__ import annotations

import ctypes
import pathlib
import sys
import time

import nvrtc
import torch
from torch.nn import functional

SOURCE = pathlib.Path(__file__).resolve().parent / "known_kernels.cuh"
BYTES = 512 << 20
# Rows, columns and depth.
PRODUCTS = ((8192, 8192, 2048), (2048, 16384, 512), (512, 4096, 16384))


def own_kernels(module: nvrtc.Module) -> list:
    """Launches with the grids of kernels.cu."""
    count = torch.cuda.get_device_properties(0).multi_processor_count
    source, result = (torch.zeros(BYTES // 4, device="cuda") for _ in range(2))
    # The number of blocks of 256 threads with few registers that fit on a multiprocessor.
    fit = torch.cuda.get_device_properties(0).max_threads_per_multi_processor // 256
    words, wide, loops = ctypes.c_size_t(BYTES // 4), ctypes.c_size_t(BYTES // 16), ctypes.c_int
    launches = [
        ("k_copy", count * 8, 512, (result, source, wide)), ("k_fma", count * 8, 256, (result, loops(20_000))),
        ("k_bank", count * 2, 1024, (result, loops(5_000))), ("k_stride", BYTES // 4 // 32 // 256, 256, (result, source, words)),
        ("k_tail", count * fit + 1, 256, (result, loops(60_000))), ("k_few", count // 4, 256, (result, loops(60_000))),
        ("k_spill", count * 8, 256, (result, loops(2_000), loops(7))), ("k_diverge", count * 4, 256, (result, loops(1_000)))]
    return [
        lambda name=name, grid=grid, block=block, arguments=arguments: module.launch(name, (grid, 1, 1), (block, 1, 1), *arguments)
        for name, grid, block, arguments in launches]


def library_kernels() -> list:
    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    products = [(tensor(rows, depth), tensor(depth, columns)) for rows, columns, depth in PRODUCTS]
    query, key, value = (tensor(4, 16, 2048, 64) for _ in range(3))
    scores, hidden = tensor(16384, 4096), tensor(32768, 4096)
    return [
        *(lambda left=left, right=right: left @ right for left, right in products),
        lambda: functional.scaled_dot_product_attention(query, key, value), lambda: torch.softmax(scores, -1),
        lambda: functional.layer_norm(hidden, (4096,))]


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    launches = [*library_kernels(), *own_kernels(nvrtc.Module(SOURCE.read_bytes(), str(SOURCE)))]
    end, steps = time.monotonic() + float(sys.argv[1]), 0
    while time.monotonic() < end or not steps:
        for launch in launches:
            launch()
        torch.cuda.synchronize()
        steps += 1
    print(f"{steps} steps")


if __name__ == "__main__":
    main()
