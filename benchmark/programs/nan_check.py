"""A training that checks each gradient for NaN."""

import torch
from torch import nn

from loop import run


def build():
    model = nn.Sequential(*(layer for _ in range(24) for layer in (nn.Linear(512, 512), nn.ReLU()))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(128, 512, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        for weight in model.parameters():
            assert not bool(weight.grad.isnan().any())

    return step


if __name__ == "__main__":
    run(build)
