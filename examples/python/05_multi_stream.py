"""Lesson 5: several streams, and their use.

Batches are copied on one stream and computed on another, two buffers deep, with events between them. The copies take
long, but they overlap with the kernels, so only the kernels matter. A tool that adds up the time of all streams would
report more than 100 % here; gpuwhy accounts by device, and every nanosecond counts once.

Bottleneck: `gpu_compute`

    CUDA_INJECTION64_PATH=libprof.so python 05_multi_stream.py             # copies overlap with compute
    CUDA_INJECTION64_PATH=libprof.so python 05_multi_stream.py --one-stream  # copies between compute
"""

import argparse
import time

import torch


# Steps before the clock starts: the first ones load libraries and choose algorithms.
WARM_UP = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--steps", type=int, help="stop after so many steps instead")
    parser.add_argument("--one-stream", action="store_true", help="everything on one stream: the knob of this lesson")
    parser.add_argument("--size", type=int, default=4096, help="width of the square matrices")
    options = parser.parse_args()

    size = options.size
    host = [torch.randn(size, size, pin_memory=True) for _ in range(2)]
    device = [torch.empty(size, size, device="cuda") for _ in range(2)]
    weight = torch.randn(size, size, device="cuda")
    compute = torch.cuda.current_stream()
    copy = compute if options.one_stream else torch.cuda.Stream()
    filled = [torch.cuda.Event() for _ in range(2)]
    drained = [torch.cuda.Event() for _ in range(2)]

    steps, began = 0, time.perf_counter()
    while steps != options.steps and (options.steps or time.perf_counter() - began < options.seconds):
        slot = steps % 2
        # Waiting for the buffer used two steps ago keeps the host two steps ahead.
        drained[slot].synchronize()
        with torch.cuda.stream(copy):
            device[slot].copy_(host[slot], non_blocking=True)
            filled[slot].record()
        compute.wait_event(filled[slot])
        product = device[slot] @ weight
        torch.relu_(product)
        drained[slot].record(compute)
        steps += 1
        if steps == WARM_UP:
            torch.cuda.synchronize()
            began = time.perf_counter()
    torch.cuda.synchronize()
    rate = max(0, steps - WARM_UP) / (time.perf_counter() - began)
    print(f"{rate:.1f} steps/s on {'one stream' if options.one_stream else 'two streams'}")


if __name__ == "__main__":
    main()
