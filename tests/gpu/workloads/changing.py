"""A training whose bottleneck changes twice: computation, then data loading, then launches of small kernels.

`changing.py --seconds 45` runs each part for this long, `--parts launch` runs only one. Each step is named by an NVTX
range. A line for each part has the number of steps, and the median step of its first and last third.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    """Samples whose preparation takes the CPU some 20 ms each."""

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(400_000).sort().values[:4096]


class Everything:
    """Models and inputs of all parts, made before the first one."""

    def __init__(self) -> None:
        self.large = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192) for _ in range(4))).cuda().bfloat16()
        self.small = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(40))).cuda()
        self.input_large = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        self.input_small = torch.randn(16, 64, device="cuda")
        self.middle = torch.nn.Linear(4096, 4096).cuda()
        # In the process, as in many trainings; a sampler would materialize all of the numbers.
        self.loader = iter(DataLoader(Slow(), batch_size=4, sampler=iter(range(1 << 40))))

    def compute(self) -> None:
        self.large(self.input_large).sum().backward()
        torch.cuda.synchronize()

    def loading(self) -> None:
        self.middle(next(self.loader).cuda()).sum().backward()
        torch.cuda.synchronize()

    def launch(self) -> None:
        self.small(self.input_small).sum().backward()
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=45.0, help="of each part")
    parser.add_argument("--parts", default="compute,loading,launch", help="in their order, separated by commas")
    options = parser.parse_args()
    everything = Everything()
    print(f"begins {time.time():.3f}", flush=True)
    for part in options.parts.split(","):
        step = getattr(everything, part)
        begun, times = time.time(), []
        while time.time() - begun < options.seconds:
            torch.cuda.nvtx.range_push("step")
            before = time.perf_counter()
            step()
            times.append(time.perf_counter() - before)
            torch.cuda.nvtx.range_pop()
        third = max(1, len(times) // 3)
        first, last = (statistics.median(part_of) * 1e3 for part_of in (times[:third], times[-third:]))
        print(f"part {part} begun {begun:.3f} steps {len(times)} first_ms {first:.4f} last_ms {last:.4f}", flush=True)


if __name__ == "__main__":
    main()
