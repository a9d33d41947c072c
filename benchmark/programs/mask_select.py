"""A sum of the positive values of a tensor, twenty times a step."""

import torch

from loop import run


def build():
    values = torch.randn(1 << 20, device="cuda")
    weights = torch.randn(256, 256, device="cuda")

    def step():
        nonlocal weights
        for _ in range(20):
            values[values > 0].sum()
            weights = torch.tanh(weights @ weights * 0.01)

    return step


if __name__ == "__main__":
    run(build)
