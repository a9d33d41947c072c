"""What a training loop or a server does around its steps: reading, copying, saving and tidying up."""

from __future__ import annotations

import gc
import json
import tempfile
import time

import torch
from torch.utils.data import DataLoader, Dataset

from fixes import Work
from waits import training

WORKERS = 8


class Records(Dataset):
    """Numbers as JSON."""

    def __init__(self, numbers: int) -> None:
        self.text = json.dumps([round(0.001 * number, 3) for number in range(numbers)])

    def __len__(self) -> int:
        return 1 << 24

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(json.loads(self.text))  # cause: parsed_records


def trained(model: torch.nn.Module, batch: torch.Tensor, sgd: torch.optim.Optimizer, last: torch.Tensor) -> None:
    """A training step."""
    loss = model(batch).square().mean()
    loss.backward()
    sgd.step()
    sgd.zero_grad(set_to_none=True)
    last.copy_(loss.detach())


def parsed_records(fixed: bool) -> Work:
    """The launching thread parses the records of each batch. Fix: eight workers."""
    model, _, sgd = training(6, 2048, 32)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    count = WORKERS if fixed else 0
    batches = iter(DataLoader(Records(2048), batch_size=32, num_workers=count))

    def step() -> None:
        batch = next(batches)
        trained(model, batch.to("cuda", torch.bfloat16), sgd, last)

    return Work(step, last.item, sync_every=10, warm_steps=max(3, 3 * count))


def pageable_training(fixed: bool) -> Work:
    """Batches of 38 MB come from pageable memory. Fix: pinned memory, and copies that do not block."""
    model, _, sgd = training(12, 768, 32)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    batches = [torch.full((12288, 768), 0.5 + number, pin_memory=fixed) for number in range(2)]
    number = 0

    def step() -> None:
        nonlocal number
        number += 1
        batch = batches[number % 2].to("cuda", non_blocking=fixed)  # cause: pageable_training
        trained(model, batch.to(torch.bfloat16), sgd, last)

    return Work(step, last.item, sync_every=10)


def frozen_heap(fixed: bool) -> Work:
    """Each step collects garbage beside many objects that stay. Fix: `gc.freeze()` once they exist."""
    model, batch, sgd = training(6, 1024, 1024)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    kept = [[number] for number in range(50_000)]
    if fixed:
        gc.freeze()

    def step() -> None:
        trained(model, batch, sgd, last)
        gc.collect()  # cause: frozen_heap

    return Work(step, lambda: last.item() + 0 * len(kept), sync_every=1)


def saved_steps(fixed: bool) -> Work:
    """Weights and the optimizer's state are saved after each step. Fix: after each fiftieth."""
    model, batch, _ = training(4, 512, 512)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)
    file, number, every = tempfile.TemporaryFile(dir="."), 0, 50 if fixed else 1

    def step() -> None:
        nonlocal number
        trained(model, batch, adam, last)
        number += 1
        if number % every == 0:
            file.seek(0)
            torch.save({"model": model.state_dict(), "optimizer": adam.state_dict()}, file)  # cause: saved_steps

    return Work(step, last.item, cycle=every, end=file.close)


@torch.no_grad()
def request_cache(fixed: bool) -> Work:
    """A server gives its memory back to the driver after each request. Fix: it keeps it."""
    model, batch, _ = training(6, 2048, 4096)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step() -> None:
        last.copy_(model(batch).square().mean())
        if not fixed:
            torch.cuda.empty_cache()  # cause: request_cache

    return Work(step, last.item)


def rate_limited(fixed: bool) -> Work:
    """A step waits on purpose, as the program may not take more of a shared service. No fix."""
    model, batch, sgd = training(6, 2048, 1024)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        trained(model, batch, sgd, last)
        time.sleep(4e-3)

    return Work(step, last.item)
