"""A training that writes a log of 4 MB in each step."""

import os
import tempfile

import torch
from torch import nn

from loop import run


def build():
    model = nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(512, 512), nn.ReLU()))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(256, 512, device="cuda")
    log = tempfile.NamedTemporaryFile()
    lines = os.urandom(4 << 20)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        log.seek(0)
        log.write(lines)
        log.flush()
        os.fsync(log.fileno())

    return step


if __name__ == "__main__":
    run(build)
