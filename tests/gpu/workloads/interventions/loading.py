"""Host work for each batch, in the launching thread or in workers."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator

import numpy
import torch

from fixes import Work

# Workers of the fix. Those that sleep need no core.
WORKERS, SLEEPING_WORKERS = 8, 12


class Device:
    """Some milliseconds of device work, to which a batch is added."""

    def __init__(self, products: int) -> None:
        torch.manual_seed(0)
        self.products = products
        self.weight = torch.randn(2048, 2048, device="cuda") / 45
        self.state = torch.randn(2048, 2048, device="cuda")
        self.last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def compute(self, batch: torch.Tensor) -> None:
        # Before the products: a copy from pageable memory waits for the earlier work of its stream.
        batch = batch.to("cuda")
        x = self.state
        for _ in range(self.products):
            x = x @ self.weight
        self.last.copy_(x[0, 0] + batch.mean())


class Batches(torch.utils.data.IterableDataset):
    """Ready-made batches without end, the same in every worker."""

    def __init__(self, make) -> None:
        self.make = make

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            yield self.make()


def worked(make, fixed: bool, products: int = 8) -> Work:
    """The batches are made by the launching thread, or by workers."""
    device = Device(products)
    workers = iter(torch.utils.data.DataLoader(Batches(make), batch_size=None, num_workers=WORKERS)) if fixed else None

    def step() -> None:
        device.compute(make() if workers is None else next(workers))

    return Work(step, device.last.item, sync_every=10, warm_steps=3 * WORKERS if fixed else 3)


class Slow(torch.utils.data.Dataset):
    """Samples from a slow disk, with a wait for each."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.sample = torch.full((3, 64, 64), 0.5)

    def __len__(self) -> int:
        return 1 << 24

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.seconds:
            time.sleep(self.seconds)
        return self.sample


def loader_sleep(fixed: bool) -> Work:
    """Two workers that sleep for their samples. Fix: twelve."""
    device = Device(14)
    count = SLEEPING_WORKERS if fixed else 2
    batches = iter(torch.utils.data.DataLoader(Slow(0.005), batch_size=8, num_workers=count))
    return Work(lambda: device.compute(next(batches)), device.last.item, sync_every=10, warm_steps=3 * count)


def slow_collate(samples: list[torch.Tensor]) -> torch.Tensor:
    """Joins samples in Python, for some eight milliseconds."""
    deadline = time.perf_counter() + 8e-3
    joined = torch.stack(samples)
    while time.perf_counter() < deadline:
        pass
    return joined


def collate(fixed: bool) -> Work:
    """A slow collate function in the launching thread. Fix: workers."""
    device = Device(8)
    count = WORKERS if fixed else 0
    loader = torch.utils.data.DataLoader(Slow(0.0), batch_size=8, num_workers=count, collate_fn=slow_collate)
    batches = iter(loader)
    return Work(lambda: device.compute(next(batches)), device.last.item, sync_every=10, warm_steps=max(3, 3 * count))


class Augment:
    """Crops, mirrors and adds noise with numpy."""

    def __init__(self) -> None:
        self.random = numpy.random.default_rng(0)
        self.images = numpy.full((32, 3, 72, 72), 0.5, dtype=numpy.float32)

    def __call__(self) -> torch.Tensor:
        top, left = self.random.integers(0, 8, 2)
        images = self.images[:, :, top:top + 64, left:left + 64][..., ::-1]
        return torch.from_numpy((images + 0.1 * self.random.normal(size=images.shape)).astype(numpy.float32))


def augment_numpy(fixed: bool) -> Work:
    """Augmentation with numpy between two launches. Fix: workers."""
    return worked(Augment(), fixed)


class Tokenize:
    """Reads JSON records and replaces their words by numbers."""

    def __init__(self) -> None:
        words = [f"word{number}" for number in range(997)]
        texts = [" ".join(words[(7 * record + 3 * place) % 997] for place in range(160)) for record in range(256)]
        self.vocabulary = {word: number for number, word in enumerate(words)}
        self.records = [json.dumps({"id": number, "text": text}) for number, text in enumerate(texts)]

    def __call__(self) -> torch.Tensor:
        tokens = numpy.zeros((len(self.records), 160), dtype=numpy.float32)
        for row, record in zip(tokens, self.records):
            numbers = [self.vocabulary[word] for word in json.loads(record)["text"].split()]
            row[:len(numbers)] = numbers
        return torch.from_numpy(tokens)


def tokenize_json(fixed: bool) -> Work:
    """Records are read and tokenized between two launches. Fix: workers."""
    return worked(Tokenize(), fixed)


def gc_collect(fixed: bool) -> Work:
    """The garbage collector is called in each step of a program with many objects. Fix: no call."""
    device = Device(12)
    kept = [[number] for number in range(50_000)]
    batch = torch.full((8, 3, 64, 64), 0.5)

    def step() -> None:
        device.compute(batch)
        if not fixed:
            gc.collect()

    return Work(step, lambda: device.last.item() + 0 * len(kept), sync_every=1)
