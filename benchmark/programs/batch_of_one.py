"""A Transformer layer on 64 samples."""

import torch
from torch import nn

from loop import run


def build():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True).cuda().eval()
    samples = torch.randn(64, 64, 256, device="cuda")

    @torch.no_grad()
    def step():
        for i in range(len(samples)):
            layer(samples[i:i + 1])

    return step


if __name__ == "__main__":
    run(build)
