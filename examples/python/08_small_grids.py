"""Lesson 8: kernels that keep the device busy but most multiprocessors idle.

The softmax of one long row is the work of one thread block, so it runs on one multiprocessor while the others are
idle. The device always runs a kernel, and nvidia-smi shows a utilization of 100 %; no copy, launch or wait limits the
program. With all rows at once, the same kernel uses a multiprocessor for each. The report shows the possible gain: the
speedup if each row takes the same time as alone. Long rows of single precision take longer: together they exceed the
L2 cache, and wait for device memory.

Bottleneck: `gpu_compute`

    CUDA_INJECTION64_PATH=libprof.so python 08_small_grids.py            # a kernel for each row
    CUDA_INJECTION64_PATH=libprof.so python 08_small_grids.py --batched  # one kernel for all rows
    CUDA_INJECTION64_PATH=libprof.so python 08_small_grids.py --double --rows 16 --columns 65536  # rows that stay in cache
"""

import argparse
import time

import torch


# Steps before the clock starts: the first ones load libraries and choose algorithms.
WARM_UP = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--steps", type=int, help="stop after so many steps instead")
    parser.add_argument("--batched", action="store_true", help="all rows in one kernel: the knob of this lesson")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--columns", type=int, default=1 << 19, help="long enough for a block to outlast its launch")
    parser.add_argument("--double", action="store_true", help="in double precision: more to compute for each byte")
    options = parser.parse_args()

    precision = torch.float64 if options.double else torch.float32
    scores = torch.randn(options.rows, options.columns, device="cuda", dtype=precision)
    parts = [scores] if options.batched else scores.split(1)
    # As a training loop does when it logs, and before the driver blocks a host that is about 1,000 launches ahead.
    log_every = max(1, 800 // options.rows)
    steps, began = 0, time.perf_counter()
    while steps != options.steps and (options.steps or time.perf_counter() - began < options.seconds):
        scores.neg_()  # new scores, by a kernel that fills the device
        for part in parts:
            torch.softmax(part, dim=1)
        steps += 1
        if steps == WARM_UP:
            torch.cuda.synchronize()
            began = time.perf_counter()
        if steps % log_every == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    rate = max(0, steps - WARM_UP) / (time.perf_counter() - began)
    how = "in one kernel" if options.batched else "one by one"
    print(f"{rate:.0f} steps/s with {options.rows} rows {how}")


if __name__ == "__main__":
    main()
