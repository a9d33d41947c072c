"""A training whose optimizer updates 96 small tensors."""

import torch
from torch import nn

from loop import run


def build():
    layers = [layer for _ in range(48) for layer in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    batch = torch.randn(32, 256, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    run(build)
