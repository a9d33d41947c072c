"""Lesson 9: measuring only the part that matters.

A program starts slowly: it reads, compiles, tunes, warms up. It is measured only between `cudaProfilerStart` and
`cudaProfilerStop`; PyTorch has both functions, and nsys supports them too.

Captured: `gpu_compute`, and exactly the number of kernels that the program prints for the launches in between.

    gpuwhy run -c cudaProfilerApi -- python 09_capture_range.py
    python 09_capture_range.py                # without a profiler the two functions have no effect
"""

import argparse
import time

import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="steps in the captured part")
    parser.add_argument("--size", type=int, default=4096)
    options = parser.parse_args()

    weights = torch.randn(options.size, options.size, device="cuda", dtype=torch.bfloat16)
    values = torch.randn(options.size, options.size, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        torch.relu_(torch.mm(weights, values))  # two kernels

    for _ in range(20):  # the slow start, which must not be in the report
        step()
        torch.cuda.synchronize()
        time.sleep(0.02)

    torch.cuda.cudart().cudaProfilerStart()
    began = time.perf_counter()
    for _ in range(options.steps):
        step()
    torch.cuda.synchronize()
    rate = options.steps / (time.perf_counter() - began)
    torch.cuda.cudart().cudaProfilerStop()

    step()
    torch.cuda.synchronize()
    print(f"{2 * options.steps} kernels between start and stop, {rate:.0f} steps/s")


if __name__ == "__main__":
    main()
