"""Images in a layout that kernels have to change."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from fixes import Work


class Block(nn.Module):
    """Two convolutions with batch norms, and their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norms[0](self.convolutions[0](x)))
        return functional.relu(x + self.norms[1](self.convolutions[1](y)))


def layout_resnet(fixed: bool) -> Work:
    """A residual network under autocast to bf16, channels first. Fix: channels last."""
    torch.manual_seed(0)
    layout = torch.channels_last if fixed else torch.contiguous_format
    model = nn.Sequential(*(Block(128) for _ in range(4))).to("cuda").to(memory_format=layout)
    images = torch.randn(32, 128, 56, 56, device="cuda").to(memory_format=layout)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    last = torch.zeros((), device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(images).float().square().mean()
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        last.copy_(loss.detach())

    return Work(step, last.item, sync_every=10)


class Patches(nn.Module):
    """One convolution that cuts images into patches, and many layers behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, 768, 16, stride=16)
        self.layers = nn.Sequential(*(part for _ in range(12) for part in (nn.Linear(768, 768), nn.GELU())))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(self.cut(images).flatten(2).transpose(1, 2))


def one_convolution(fixed: bool) -> Work:
    """A network with a single convolution in front of its layers: the layout of images hardly matters. No fix."""
    torch.manual_seed(0)
    model = Patches().to("cuda", torch.bfloat16)
    images = torch.randn(32, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        loss = model(images).square().mean()
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        last.copy_(loss.detach())

    return Work(step, last.item, sync_every=10)


@torch.no_grad()
def kept_layout(fixed: bool) -> Work:
    """Channels are moved behind the rows of an image for each norm, and back. Fix: they stay there."""
    torch.manual_seed(0)
    images = torch.randn(64, 128, 64, 64, device="cuda")
    weights = torch.rand(8, 128, device="cuda") + 0.5
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = images.permute(0, 2, 3, 1).contiguous() if fixed else images
        for weight in weights:
            if fixed:
                x = functional.layer_norm(x, (128,), weight)
            else:
                moved = x.permute(0, 2, 3, 1).contiguous()  # cause: kept_layout
                x = functional.layer_norm(moved, (128,), weight).permute(0, 3, 1, 2).contiguous()  # cause: kept_layout
        last.copy_(x[0, 0, 0, 0])

    return Work(step, last.item)
