"""Lesson 2: `.item()` in the inner loop.

`.item()` waits until the device has finished everything. Only then does the host go on with its own bookkeeping, and
only after that does it launch the next operation: the two take turns instead of working side by side. The same
bookkeeping costs nothing when the value is read once in a while, because it is done while the device computes.

Verdict: `sync`

    CUDA_INJECTION64_PATH=libprof.so python 02_sync_item.py              # waits after each operation
    CUDA_INJECTION64_PATH=libprof.so python 02_sync_item.py --every 100  # reads the value once in a while
"""

import argparse
import time

import torch


# Steps before the clock starts: in the first ones libraries are loaded and algorithms chosen.
WARM_UP = 100


def bookkeeping(microseconds: float) -> None:
    """What a training loop does between two steps: schedules, running averages, the next indices."""
    deadline = time.perf_counter() + microseconds / 1e6
    while time.perf_counter() < deadline:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--steps", type=int, help="stop after so many steps instead")
    parser.add_argument("--every", type=int, default=1, help="steps between two reads: the knob of this lesson")
    # 128 MiB read and written take about 65 us at 4 TB/s: as long as the host needs for the rest of a step.
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
