"""A training of seven convolutions on images."""

import torch
from torch import nn

from loop import run


def build():
    torch.backends.cudnn.allow_tf32 = False
    layers = [nn.Conv2d(3, 128, 3, padding=1), nn.ReLU()]
    layers += [layer for _ in range(6) for layer in (nn.Conv2d(128, 128, 3, padding=1), nn.ReLU())]
    model = nn.Sequential(*layers).cuda()
    images = torch.randn(64, 3, 96, 96, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(images).pow(2).mean()
        loss.backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    run(build)
