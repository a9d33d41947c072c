"""Lesson 3: batches in pageable memory.

A copy from pageable memory goes through a staging buffer of the driver, blocks the host, and does not overlap with
kernels. From pinned memory the copy engine reads the data directly, on a separate stream, while kernels run.

Bottleneck: `copy`

    CUDA_INJECTION64_PATH=libprof.so python 03_pageable_copies.py           # the copies take most of the time
    CUDA_INJECTION64_PATH=libprof.so python 03_pageable_copies.py --pinned  # faster, and overlapped with kernels
"""

import argparse
import time

import torch


# Steps before the clock starts: the first ones load libraries and choose algorithms.
WARM_UP = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--steps", type=int, help="stop after so many steps instead")
    parser.add_argument("--pinned", action="store_true", help="page-locked batches on their own stream: the knob of this lesson")
    parser.add_argument("--mib", type=int, default=64, help="size of a batch")
    options = parser.parse_args()

    host = [torch.randn(options.mib << 8, 1024, pin_memory=options.pinned) for _ in range(2)]
    weight = torch.randn(1024, 1024, device="cuda")
    copies = torch.cuda.Stream() if options.pinned else torch.cuda.current_stream()

    def fetch(step: int) -> torch.Tensor:
        with torch.cuda.stream(copies):
            return host[step % 2].to("cuda", non_blocking=options.pinned)

    steps, began = 0, time.perf_counter()
    batch = fetch(0)
    while steps != options.steps and (options.steps or time.perf_counter() - began < options.seconds):
        torch.cuda.current_stream().wait_stream(copies)
        batch.record_stream(torch.cuda.current_stream())
        (batch @ weight).relu_()
        steps += 1
        if steps == WARM_UP:
            torch.cuda.synchronize()
            began = time.perf_counter()
        batch = fetch(steps)
        if steps % 8 == 0:
            torch.cuda.synchronize()  # the host must not run too far ahead of the copies
    torch.cuda.synchronize()
    rate = max(0, steps - WARM_UP) / (time.perf_counter() - began)
    print(f"{rate:.1f} steps/s, {rate * options.mib / 1024:.1f} GiB/s from {'pinned' if options.pinned else 'pageable'} memory")


if __name__ == "__main__":
    main()
