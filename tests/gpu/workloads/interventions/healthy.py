"""Programs that do as well as they can. No fix: what a report recommends for them can only be of no use."""

from __future__ import annotations

import queue
import threading

import torch
from torch import nn
from torch.nn import functional

from fixes import Work


class TunedBlock(nn.Module):
    """A block of a decoder with fused attention; all widths are multiples of 128."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, width // 128, 128).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.between(x))))


def tuned_decoder(fixed: bool) -> Work:
    """Training in bf16 with fused attention, a fused optimizer and large products. No fix."""
    torch.manual_seed(0)
    model = nn.Sequential(*(TunedBlock(2048) for _ in range(2))).to("cuda", torch.bfloat16)
    states = torch.randn(4, 1024, 2048, device="cuda", dtype=torch.bfloat16)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        loss = model(states).square().mean()
        loss.backward()
        adam.step()
        adam.zero_grad()
        last.copy_(loss.detach())

    return Work(step, last.item, sync_every=10)


def rare_reads(fixed: bool) -> Work:
    """The loss is read every fiftieth step, and batches come from pinned memory while the device computes. No fix."""
    torch.manual_seed(0)
    layers = [part for _ in range(6) for part in (nn.Linear(4096, 4096), nn.ReLU())]
    model = nn.Sequential(*layers).to("cuda", torch.bfloat16)
    batches = [torch.randn(2048, 4096, dtype=torch.bfloat16).pin_memory() for _ in range(2)]
    sgd = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    beside = torch.cuda.Stream()
    total, number, losses = torch.zeros((), device="cuda"), 0, []

    def fetched(index: int) -> torch.Tensor:
        with torch.cuda.stream(beside):
            return batches[index % 2].to("cuda", non_blocking=True)

    following = fetched(0)

    def step() -> None:
        nonlocal following, number
        torch.cuda.current_stream().wait_stream(beside)
        batch = following
        batch.record_stream(torch.cuda.current_stream())
        number += 1
        following = fetched(number)
        loss = model(batch).float().square().mean()
        loss.backward()
        sgd.step()
        sgd.zero_grad()
        total.add_(loss.detach())
        if number % 50 == 0:
            losses.append(total.item() / 50)
            total.zero_()

    return Work(step, lambda: total.item(), sync_every=50)


@torch.no_grad()
def summed_fields(fixed: bool) -> Work:
    """Two large arrays are added in single precision: each kernel reads and writes all it must, at the memory's speed.
    No fix."""
    torch.manual_seed(0)
    field, flow = (torch.rand(1 << 26, device="cuda") for _ in range(2))

    @torch.no_grad()
    def step() -> None:
        field.add_(flow, alpha=1e-3)

    return Work(step, lambda: field[0].item())


@torch.no_grad()
def arriving_requests(fixed: bool) -> Work:
    """A server answers 200 requests a second, no more arrive, and the device waits for them. No fix."""
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (nn.Linear(1024, 1024), nn.GELU())]
    model = nn.Sequential(*layers).to("cuda", torch.bfloat16).eval()
    waiting: queue.Queue[torch.Tensor] = queue.Queue(maxsize=2)
    ended = threading.Event()
    request = torch.randn(256, 1024, dtype=torch.bfloat16)
    last = torch.zeros((), device="cuda", dtype=torch.bfloat16)

    def arrive() -> None:
        while not ended.wait(5e-3):
            if not waiting.full():  # it would be answered by another server
                waiting.put(request)

    thread = threading.Thread(target=arrive, daemon=True)
    thread.start()

    @torch.no_grad()
    def step() -> None:
        last.copy_(model(waiting.get().to("cuda"))[0, 0])

    return Work(step, last.item, end=ended.set)
