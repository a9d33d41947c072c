"""Data loaders that deliver too late."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator

import numpy
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from fixes import Work
from loading import WORKERS, Device

LENGTH = 1 << 24


class Compressed(Dataset):
    """Images that are decompressed and made smaller for each sample."""

    def __init__(self) -> None:
        image = numpy.random.default_rng(0).integers(0, 24, (3, 192, 192), dtype=numpy.uint8)
        self.stored = zlib.compress(image.tobytes(), 6)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        image = numpy.frombuffer(zlib.decompress(self.stored), dtype=numpy.uint8)  # cause: decode_inline
        small = image.reshape(3, 192, 192)[:, ::3, ::3]
        return torch.from_numpy(small.astype(numpy.float32) / 24)


def decode_inline(fixed: bool) -> Work:
    """Images are decompressed in the launching thread. Fix: eight workers."""
    device = Device(4)
    count = WORKERS if fixed else 0
    batches = iter(DataLoader(Compressed(), batch_size=8, num_workers=count))
    return Work(lambda: device.compute(next(batches)), device.last.item, sync_every=10, warm_steps=max(3, 3 * count))


class Texts(Dataset):
    """Texts of different lengths, as numbers."""

    def __init__(self) -> None:
        self.texts = [torch.arange(200 + 13 * number % 200, dtype=torch.float32) for number in range(96)]

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.texts[index % len(self.texts)]


def masked_by_element(texts: list[torch.Tensor]) -> torch.Tensor:
    """Texts of one length, with a mask that Python fills element by element."""
    padded = pad_sequence(texts, batch_first=True)
    width = padded.shape[1]
    mask = torch.tensor([[place < len(text) for place in range(width)] for text in texts])  # cause: ragged_collate
    return padded * mask


def masked(texts: list[torch.Tensor]) -> torch.Tensor:
    """The same, with a mask from one comparison."""
    padded = pad_sequence(texts, batch_first=True)
    lengths = torch.tensor([len(text) for text in texts])
    return padded * (torch.arange(padded.shape[1]) < lengths[:, None])


def ragged_collate(fixed: bool) -> Work:
    """The function that joins samples fills a mask element by element. Fix: with one comparison."""
    device = Device(4)
    loader = DataLoader(Texts(), batch_size=96, num_workers=0, collate_fn=masked if fixed else masked_by_element)
    batches = iter(loader)
    return Work(lambda: device.compute(next(batches)), device.last.item, sync_every=10)


class Uneven(Dataset):
    """Ready-made batches; each ninth takes long to arrive, as from a remote store."""

    def __init__(self) -> None:
        self.batch = torch.full((8, 3, 64, 64), 0.5)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(40e-3 if index % 9 == 0 else 3e-3)  # cause: short_prefetch
        return self.batch


def short_prefetch(fixed: bool) -> Work:
    """Four workers are fast enough on average, but prefetch one batch each, and some batches take ten times as long.
    Fix: they prefetch ten."""
    device = Device(8)
    batches = iter(DataLoader(Uneven(), batch_size=None, num_workers=4, prefetch_factor=10 if fixed else 1))  # cause: short_prefetch
    return Work(lambda: device.compute(next(batches)), device.last.item, sync_every=9, warm_steps=36, cycle=9)


EPOCH = 24


class Epoch(Dataset):
    """Few batches, some milliseconds each."""

    def __init__(self) -> None:
        self.batch = torch.full((8, 3, 64, 64), 0.5)

    def __len__(self) -> int:
        return EPOCH

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(2e-3)
        return self.batch


def short_epochs(fixed: bool) -> Work:
    """Four workers are started for each epoch of 24 batches. Fix: they stay."""
    device = Device(4)
    loader = DataLoader(Epoch(), batch_size=None, num_workers=4, persistent_workers=fixed)
    batches: Iterator[torch.Tensor] = iter(loader)

    def step() -> None:
        nonlocal batches
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)  # cause: short_epochs
            batch = next(batches)
        device.compute(batch)

    return Work(step, device.last.item, sync_every=8, warm_steps=EPOCH, cycle=EPOCH)
