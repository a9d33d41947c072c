"""Lesson 7: memory that is returned to the driver after each step.

PyTorch keeps freed memory for the next step. `torch.cuda.empty_cache()` in the loop, often put there against fragmentation
or to lower the usage in nvidia-smi, returns it; the driver waits for the device to free it, and the next step has to
allocate again. The device is idle in the meantime.

Bottleneck: `allocator`

    CUDA_INJECTION64_PATH=libprof.so python 07_allocator.py         # empties the cache after each step
    CUDA_INJECTION64_PATH=libprof.so python 07_allocator.py --keep  # leaves the memory to PyTorch
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
    parser.add_argument("--keep", action="store_true", help="do not empty the cache: the knob of this lesson")
    parser.add_argument("--tensors", type=int, default=16, help="activations of a step")
    parser.add_argument("--mib", type=int, default=32, help="size of each")
    options = parser.parse_args()

    batch = torch.randn(options.mib << 8, 1024, device="cuda")
    steps, began = 0, time.perf_counter()
    while steps != options.steps and (options.steps or time.perf_counter() - began < options.seconds):
        activations = [batch]
        for _ in range(options.tensors):
            activations.append(torch.relu(activations[-1]))
        del activations
        if not options.keep:
            torch.cuda.empty_cache()
        steps += 1
        if steps == WARM_UP:
            torch.cuda.synchronize()
            began = time.perf_counter()
        if steps % 20 == 0:
            torch.cuda.synchronize()  # as a training loop does when it logs
    torch.cuda.synchronize()
    rate = max(0, steps - WARM_UP) / (time.perf_counter() - began)
    how = "with its cache kept" if options.keep else "with its cache emptied"
    print(f"{rate:.0f} steps/s {how}")


if __name__ == "__main__":
    main()
