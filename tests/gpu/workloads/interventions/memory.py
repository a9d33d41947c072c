"""Memory that is allocated and freed in each step."""

from __future__ import annotations

import torch

from fixes import Work
from waits import training


def empty_cache(fixed: bool) -> Work:
    """torch.cuda.empty_cache() after each training step. Fix: none."""
    model, batch, sgd = training(4, 2048, 2048)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        loss = model(batch).square().mean()
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        last.copy_(loss.detach())
        del loss
        if not fixed:
            torch.cuda.empty_cache()

    return Work(step, last.item)


@torch.no_grad()
def host_register(fixed: bool) -> Work:
    """A buffer of 32 MiB is pinned for each copy, and freed after it. Fix: it stays pinned."""
    torch.manual_seed(0)
    runtime = torch.cuda.cudart()
    buffer, device = torch.randn(8192, 1024), torch.zeros(8192, 1024, device="cuda")
    weight = torch.randn(1024, 1024, device="cuda") / 32
    last = torch.zeros((), device="cuda")
    held = Registered(runtime, buffer) if fixed else None

    @torch.no_grad()
    def step() -> None:
        lock = held or Registered(runtime, buffer)
        device.copy_(buffer, non_blocking=True)
        last.copy_((device @ weight)[0, 0])
        if lock is not held:
            torch.cuda.synchronize()
            lock.close()

    def result() -> float:
        return last.item()

    return Work(step, result)


class Registered:
    """The program's own pinned memory."""

    def __init__(self, runtime, buffer: torch.Tensor) -> None:
        self.runtime, self.address, self.buffer = runtime, buffer.data_ptr(), buffer
        torch.cuda.check_error(runtime.cudaHostRegister(self.address, buffer.numel() * buffer.element_size(), 0))

    def close(self) -> None:
        if self.address:
            torch.cuda.check_error(self.runtime.cudaHostUnregister(self.address))
            self.address = 0

    def __del__(self) -> None:
        self.close()
