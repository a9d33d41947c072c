"""What comes to the device and goes back: features, images, recordings and maps of classes."""

from __future__ import annotations

import itertools
import os
import random
import zlib

import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from fixes import Work

COLUMNS, ROWS, WORDS = 48, 512, 1000


class Scores(nn.Module):
    """Scores of advertisements, from the numbers of their categories."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(COLUMNS * WORDS, 16)
        self.register_buffer("starts", torch.arange(COLUMNS).unsqueeze(1) * WORDS)
        self.layers = nn.Sequential(nn.Linear(COLUMNS * 16, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, columns: torch.Tensor) -> torch.Tensor:
        found = self.table(columns + self.starts).transpose(0, 1).flatten(1)
        return torch.sigmoid(self.layers(found))


@torch.no_grad()
def categorical_copies(fixed: bool) -> Work:
    """Each of 48 columns of a request is copied to the device. Fix: one copy of all."""
    torch.manual_seed(0)
    model = Scores().to("cuda").eval()
    request = {f"category_{number}": torch.randint(0, WORDS, (ROWS,)) for number in range(COLUMNS)}
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        if fixed:
            columns = torch.stack(list(request.values())).to("cuda")
        else:
            columns = torch.stack([column.to("cuda") for column in request.values()])  # cause: categorical_copies
        last.copy_(model(columns).mean())

    return Work(step, last.item)


@torch.no_grad()
def class_maps(fixed: bool) -> Work:
    """All scores of 19 classes are copied to the host, which looks for the largest. Fix: `argmax` on the device."""
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 19, 1)]
    model = nn.Sequential(*layers).to("cuda").eval()
    images = torch.rand(2, 3, 256, 256, device="cuda")
    counts = numpy.zeros(19, dtype=numpy.int64)

    @torch.no_grad()
    def step() -> None:
        scores = model(images)
        if fixed:
            classes = scores.argmax(dim=1).to(torch.uint8).cpu().numpy()
        else:
            classes = scores.cpu().numpy().argmax(axis=1)  # cause: class_maps
        counts[classes[0, 0, 0]] += 1

    return Work(step, lambda: float(counts.argmax()))


class StoredImages(Dataset):
    """Compressed images: each is read, made smaller, flipped and scaled."""

    def __init__(self, size: int) -> None:
        ramp = numpy.add.outer(numpy.arange(size), numpy.arange(size))
        pixels = numpy.stack([ramp * factor % 251 for factor in (1, 3, 7)], axis=-1).astype(numpy.uint8)
        self.size, self.stored = size, zlib.compress(pixels.tobytes(), 6)

    def __len__(self) -> int:
        return 1 << 24

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = numpy.frombuffer(zlib.decompress(self.stored), dtype=numpy.uint8)  # cause: decoded_images
        image = pixels.reshape(self.size, self.size, 3).astype(numpy.float32)  # cause: decoded_images
        image = (image[::2, ::2] + image[1::2, ::2] + image[::2, 1::2] + image[1::2, 1::2]) / 4  # cause: decoded_images
        if index % 2:
            image = image[:, ::-1]
        image = (image / 255.0 - 0.45) / 0.225  # cause: decoded_images
        return torch.from_numpy(numpy.ascontiguousarray(image.transpose(2, 0, 1))), index % 10  # cause: decoded_images


def decoded_images(fixed: bool) -> Work:
    """The loop of a training decodes its images itself. Fix: eight workers."""
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 32, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10)]
    model = nn.Sequential(*layers).to("cuda")
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    count = 8 if fixed else 0
    batches = iter(DataLoader(StoredImages(256), batch_size=16, num_workers=count))
    last = torch.zeros((), device="cuda")

    def step() -> None:
        images, labels = next(batches)
        loss = functional.cross_entropy(model(images.to("cuda")), labels.to("cuda"))
        adam.zero_grad()
        loss.backward()
        adam.step()
        last.copy_(loss.detach())

    return Work(step, last.item, sync_every=10, warm_steps=max(3, 3 * count))


# cuDNN remembers what it tried, so each process has its own lengths, of which hardly one comes twice.
chance = random.Random(os.urandom(8))
LONGEST = 16_384
lengths = itertools.cycle(chance.sample(range(LONGEST // 2, LONGEST), 4096))


@torch.no_grad()
def recorded_lengths(fixed: bool) -> Work:
    """`cudnn.benchmark` is on although recordings have all lengths; each is processed four times. Fix: it is off."""
    torch.backends.cudnn.benchmark = not fixed
    torch.manual_seed(0)
    # Alike, so that a new length is tried once.
    layers = [nn.Conv1d(128, 128, 5, padding=2).to("cuda", torch.float16) for _ in range(3)]
    recordings = torch.randn(4, 128, LONGEST, device="cuda", dtype=torch.float16)
    batch = recordings
    last = torch.zeros((), device="cuda")
    number = 0

    @torch.no_grad()
    def step() -> None:
        nonlocal batch, number
        if number % 4 == 0:
            batch = recordings[:, :, :next(lengths)].contiguous()
        number += 1
        x = batch
        for layer in layers:
            x = functional.leaky_relu(layer(x), 0.1)  # cause: recorded_lengths
        last.copy_(x[0, 0, 0])

    return Work(step, last.item, sync_every=4, warm_steps=4, cycle=4)
