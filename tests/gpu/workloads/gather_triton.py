"""A Triton kernel that waits at one marked line: gather_triton.py SECONDS.

The mark is not at the load: the hardware attributes a wait for memory to the instruction that needs the value. Two
lines use it, the marked one and the one below; the compiler decides which comes first.
"""

from __future__ import annotations

import sys
import time

import torch
import triton
import triton.language as tl


@triton.jit
def k_triton(source, indices, result, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(indices + places)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for step in range(64):
        values = tl.load(source + (at * 7919 + step * 104729) % 134217728)
        total += values  # HOT k_triton
        at += (values > 1e30).to(tl.int64)
    tl.store(result + places, total)


def main() -> None:
    threads = 1 << 20
    source = torch.zeros(134217728, device="cuda")
    indices = torch.randint(0, 1 << 30, (threads,), device="cuda")
    result = torch.zeros(threads, device="cuda")
    k_triton[(threads // 256,)](source, indices, result, BLOCK=256)
    torch.cuda.synchronize()
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        k_triton[(threads // 256,)](source, indices, result, BLOCK=256)
        torch.cuda.synchronize()
    print("done")


if __name__ == "__main__":
    main()
