"""Networks for volumes, speech, images and points, each with one setting or one line that costs most of its time."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from fixes import Work


class VolumeBlock(nn.Module):
    """A convolution of a volume with its norm."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv3d(inputs, outputs, 3, stride=stride, padding=1)
        self.norm = nn.InstanceNorm3d(outputs, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.leaky_relu(self.norm(self.convolution(x)), 0.01)


def volume_segmenter(fixed: bool) -> Work:
    """Scans are segmented by 3D convolutions, and TF32 is off, as in scripts for equal results. Fix: TF32."""
    torch.backends.cudnn.allow_tf32 = fixed
    torch.manual_seed(0)
    model = nn.Sequential(
        VolumeBlock(1, 32), VolumeBlock(32, 32), VolumeBlock(32, 64, stride=2), VolumeBlock(64, 64),
        VolumeBlock(64, 64), nn.Upsample(scale_factor=2), nn.Conv3d(64, 4, 1)).to("cuda")
    scans = torch.randn(2, 1, 64, 64, 64, device="cuda")
    organs = torch.randint(0, 4, (2, 64, 64, 64), device="cuda")
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    last = torch.zeros((), device="cuda")

    def step() -> None:
        adam.zero_grad()
        loss = functional.cross_entropy(model(scans), organs)
        loss.backward()
        adam.step()
        last.copy_(loss.detach())

    return Work(step, last.item, sync_every=10)


class SpeechLayer(nn.Module):
    """A wide part for each frame, and a narrow one over those around it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
        self.around = nn.Conv1d(width, width, 15, padding=7, groups=width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.wide(self.first(x))
        return x + self.around(self.second(x).transpose(1, 2)).transpose(1, 2)


class SpeechEncoder(nn.Module):
    """Spectra to letters, one for each fourth frame."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(80, width, 3, stride=2, padding=1), nn.GELU(),
            nn.Conv1d(width, width, 3, stride=2, padding=1), nn.GELU())
        self.layers = nn.ModuleList(SpeechLayer(width) for _ in range(layers))
        self.letters = nn.Linear(width, 64)

    def forward(self, spectra: torch.Tensor) -> torch.Tensor:
        x = self.front(spectra).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.letters(x)


def speech_encoder(fixed: bool) -> Work:
    """A speech encoder is trained in single precision. Fix: autocast to bf16."""
    torch.manual_seed(0)
    model = SpeechEncoder(1024, 4).to("cuda")
    spectra = torch.randn(8, 80, 2048, device="cuda")
    letters = torch.randint(0, 64, (8, 512), device="cuda")
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    last = torch.zeros((), device="cuda")

    def step() -> None:
        adam.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=fixed):
            loss = functional.cross_entropy(model(spectra).flatten(0, 1).float(), letters.flatten())
        loss.backward()
        adam.step()
        last.copy_(loss.detach())

    return Work(step, last.item, sync_every=10)


def double_convolution(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Three levels of an image, joined on the way up."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.down = nn.ModuleList((double_convolution(3, 64), double_convolution(64, 128)))
        self.middle = double_convolution(128, 256)
        self.up = nn.ModuleList((double_convolution(256 + 128, 128), double_convolution(128 + 64, 64)))
        self.pool = nn.MaxPool2d(2)
        self.larger = nn.Upsample(scale_factor=2, mode="nearest")
        self.head = nn.Conv2d(64, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for level in self.down:
            x = level(x)
            kept.append(x)
            x = self.pool(x)
        x = self.middle(x)
        for level, before in zip(self.up, reversed(kept)):
            x = level(torch.cat([self.larger(x), before], dim=1))
        return self.head(x)


@torch.no_grad()
def unet_server(fixed: bool) -> Work:
    """A U-Net in half precision segments images that are stored channel by channel. Fix: channels last."""
    torch.manual_seed(0)
    layout = torch.channels_last if fixed else torch.contiguous_format
    model = UNet(8).to("cuda", torch.float16).to(memory_format=layout).eval()
    images = torch.randn(16, 3, 256, 256, device="cuda", dtype=torch.float16).to(memory_format=layout)
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        last.copy_(model(images)[0, 0, 0, 0])

    return Work(step, last.item, sync_every=10)


class PointLayers(nn.Module):
    """The same layers for each point of a cloud. Norms expect channels first, or rows without a batch."""

    def __init__(self, width: int, layers: int, fixed: bool) -> None:
        super().__init__()
        self.fixed = fixed
        self.linears = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        x = points
        for linear, norm in zip(self.linears, self.norms):
            x = linear(x)
            if self.fixed:
                x = norm(x.flatten(0, 1)).view_as(x)
            else:
                x = norm(x.transpose(1, 2).contiguous())  # cause: point_layers
                x = x.transpose(1, 2).contiguous()  # cause: point_layers
            x = functional.relu(x)
        return x.amax(dim=1)


@torch.no_grad()
def point_layers(fixed: bool) -> Work:
    """Point clouds are transposed for each norm, and back. Fix: the norm takes all points as rows."""
    torch.manual_seed(0)
    model = PointLayers(128, 4, fixed).to("cuda", torch.bfloat16).eval()
    clouds = torch.randn(64, 8192, 128, device="cuda", dtype=torch.bfloat16)
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        last.copy_(model(clouds).float().mean())

    return Work(step, last.item, sync_every=10)
