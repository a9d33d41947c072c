"""torch.profiler in a process that is already traced: both want the one CUPTI subscriber of the process.

Neither may crash, and the program's results must stay right. Prints how many kernels torch.profiler saw on stderr,
because that number is allowed to be 0 under another tool, and stdout must not depend on it.
"""

from __future__ import annotations

import sys

import torch
from torch.profiler import ProfilerActivity, profile, schedule


def main() -> int:
    values = torch.ones(1 << 16, device="cuda")
    seen = 0

    def ready(profiler: profile) -> None:
        nonlocal seen
        seen += sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiler.events())

    for _ in range(2):
        with profile(
                activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
                schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=ready) as profiler:
            for _ in range(8):
                for _ in range(50):
                    values.add_(1.0)
                torch.cuda.synchronize()
                profiler.step()
    print("value", values[0].item())
    print("torch.profiler saw device events:", seen, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
