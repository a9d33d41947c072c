"""Lesson 10: names for the parts of a step.

`torch.cuda.nvtx.range` names a part of the program. For each range the report shows its time on the host, the time of
its device work, and the causes of device idle time: here the device waits for the host in the `augment` range.

Bottleneck: `host_cpu`

    gpuwhy run -- python 10_ranges.py; gpuwhy report --ranges gpuwhy-*.gpuwhy
    CUDA_INJECTION64_PATH=libprof.so NVTX_INJECTION64_PATH=libprof.so python 10_ranges.py
"""

import argparse
import time

import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--steps", type=int, help="stop after so many steps instead")
    parser.add_argument("--augment-ms", type=float, default=5.0, help="what the host computes in the range `augment`")
    options = parser.parse_args()

    weights = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    values = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    steps, began = 0, time.perf_counter()
    while steps != options.steps and (options.steps or time.perf_counter() - began < options.seconds):
        with torch.cuda.nvtx.range("step"):
            with torch.cuda.nvtx.range("augment"):
                deadline = time.perf_counter() + options.augment_ms / 1e3
                while time.perf_counter() < deadline:
                    pass
            with torch.cuda.nvtx.range("forward"):
                torch.relu_(torch.mm(weights, values))
        steps += 1
    torch.cuda.synchronize()
    print(f"{steps} steps")


if __name__ == "__main__":
    main()
