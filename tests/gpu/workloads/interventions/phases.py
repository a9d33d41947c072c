"""Programs with two long phases, each with its own cause. The fix is for the longer one."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fixes import Work
from launches import captured


def phased(
        first: Callable[[], object], count: int, second: Callable[[], object], other_count: int,
        result: Callable[[], float]) -> Work:
    """So many steps of the first phase, then of the second. Both have run before the clock starts."""
    cycle = count + other_count
    number = 0

    def step() -> None:
        nonlocal number
        (first if number % cycle < count else second)()
        number += 1

    def begin() -> None:
        nonlocal number
        number = 0

    for _ in range(3):
        second()
    return Work(step, result, cycle=cycle, begin=begin)


def small_operations(last: torch.Tensor) -> Callable[[], None]:
    """Some two milliseconds of launches for little work."""
    torch.manual_seed(0)
    weights = [torch.randn(256, 256, device="cuda") / 16 for _ in range(60)]
    batch = torch.randn(64, 256, device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = batch
        for weight in weights:
            x = torch.tanh(x @ weight) + 0.1 * x  # cause: train_then_export
        last.copy_(x[0, 0])

    return step


@torch.no_grad()
def load_then_train(fixed: bool) -> Work:
    """Batches of 16 MiB from pageable memory, then half as long small operations. Fix: pinned memory and a separate
    stream for the batches."""
    torch.manual_seed(0)
    host = [torch.full((4096, 1024), 0.5, pin_memory=fixed) for _ in range(2)]
    weight = torch.randn(1024, 1024, device="cuda") / 32
    last = torch.zeros((), device="cuda")
    copies = torch.cuda.Stream() if fixed else torch.cuda.current_stream()
    turn = 0

    def fetch() -> torch.Tensor:
        nonlocal turn
        turn += 1
        with torch.cuda.stream(copies):
            return host[turn % 2].to("cuda", non_blocking=fixed)  # cause: load_then_train

    batch = fetch()

    @torch.no_grad()
    def load() -> None:
        nonlocal batch
        torch.cuda.current_stream().wait_stream(copies)
        batch.record_stream(torch.cuda.current_stream())
        last.copy_((batch @ weight)[0, 0])
        batch = fetch()

    return phased(load, 180, small_operations(last), 120, last.item)


@torch.no_grad()
def train_then_export(fixed: bool) -> Work:
    """Small operations, then half as long results that are copied to the host. Fix: a CUDA graph of the small
    operations."""
    last = torch.zeros((), device="cuda")
    train = small_operations(last)
    results, archive = torch.full((4096, 1024), 0.5, device="cuda"), torch.zeros(4096, 1024)

    @torch.no_grad()
    def export() -> None:
        archive.copy_(results.mul_(0.999))

    return phased(captured(train) if fixed else train, 220, export, 50, last.item)
