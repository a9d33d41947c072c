"""Lesson 2: `.item()` in the inner loop.

`.item()` waits until the device has finished all work. Only then does the host continue with its bookkeeping, and only
after that does it launch the next operation: host and device alternate instead of working in parallel. The same
bookkeeping costs no time when the value is read only now and then, because the device computes in the meantime.

Bottleneck: `sync`

    CUDA_INJECTION64_PATH=libprof.so python 02_sync_item.py              # waits after each operation
    CUDA_INJECTION64_PATH=libprof.so python 02_sync_item.py --every 100  # reads the value now and then
"""

import argparse
import time

import torch


# Steps before the clock starts: the first ones load libraries and choose algorithms.
WARM_UP = 100


def bookkeeping(microseconds: float) -> None:
    """Work of a training loop between two steps: schedules, running averages, the next indices."""
    deadline = time.perf_counter() + microseconds / 1e6
    while time.perf_counter() < deadline:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--steps", type=int, help="stop after so many steps instead")
    parser.add_argument("--every", type=int, default=1, help="steps between two reads: the knob of this lesson")
    # Reading and writing 128 MiB takes about 65 us at 4 TB/s: as long as the host needs for the rest of a step.
    parser.add_argument("--elements", type=int, default=1 << 25)
    parser.add_argument("--host-us", type=float, default=50.0, help="bookkeeping of the host for each step")
    options = parser.parse_args()

    values = torch.zeros(options.elements, device="cuda")
    steps, last, began = 0, 0.0, time.perf_counter()
    while steps != options.steps and (options.steps or time.perf_counter() - began < options.seconds):
        values.add_(1.0)
        steps += 1
        if steps == WARM_UP:
            torch.cuda.synchronize()
            began = time.perf_counter()
        if steps % options.every == 0:
            last = values[0].item()
        bookkeeping(options.host_us)
    torch.cuda.synchronize()
    rate = max(0, steps - WARM_UP) / (time.perf_counter() - began)
    print(f"{rate:.0f} steps/s with a read every {options.every}, last value {last:g}")


if __name__ == "__main__":
    main()
