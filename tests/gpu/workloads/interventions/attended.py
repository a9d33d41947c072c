"""Attention that stores its scores, builds its masks, or copies its cache."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from fixes import Work


class Attention(nn.Module):
    """Attention to earlier tokens, with scores in memory or in one kernel."""

    def __init__(self, length: int, fixed: bool) -> None:
        super().__init__()
        self.fixed = fixed
        mask = torch.full((length, length), float("-inf"), device="cuda", dtype=torch.bfloat16).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.fixed:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = q @ k.transpose(-2, -1) * 0.125 + self.mask  # cause: masked_attention
        return torch.softmax(scores, dim=-1) @ v  # cause: masked_attention


@torch.no_grad()
def masked_attention(fixed: bool) -> Work:
    """Attention by hand: scores, mask and softmax go through memory. Fix: `scaled_dot_product_attention`."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 16, 2048, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    attention = Attention(2048, fixed)
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = attention(attention(q, k, v), k, v)
        last.copy_(x[0, 0, 9, 0])

    return Work(step, last.item)


@torch.no_grad()
def built_masks(fixed: bool) -> Work:
    """Each layer builds a mask for each sequence of the batch, as a tensor. Fix: `is_causal=True`."""
    torch.manual_seed(0)
    batch, length = 4, 4096
    q, k, v = (torch.randn(batch, 8, length, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = q
        for _ in range(2):
            if fixed:
                x = functional.scaled_dot_product_attention(x, k, v, is_causal=True)
            else:
                mask = torch.full((batch, 1, length, length), float("-inf"), device="cuda", dtype=x.dtype).triu(1)  # cause: built_masks
                x = functional.scaled_dot_product_attention(x, k, v, attn_mask=mask)
        last.copy_(x[0, 0, 9, 0])

    return Work(step, last.item, sync_every=10)


@torch.no_grad()
def single_attention(fixed: bool) -> Work:
    """Attention in single precision, for which there is no flash kernel. Fix: bf16."""
    torch.manual_seed(0)
    precision = torch.bfloat16 if fixed else torch.float32
    q, k, v = (torch.randn(4, 16, 2048, 64, device="cuda").to(precision) for _ in range(3))
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        x = q
        for _ in range(2):
            x = functional.scaled_dot_product_attention(x, k, v)
        last.copy_(x[0, 0, 0, 0])

    return Work(step, last.item, sync_every=10)


LAYERS, CONTEXT, TOKENS = 6, 2048, 64
# Sequences, heads, and the width of a head.
SEQUENCES, HEADS, WIDTH = 8, 16, 128


class Grown:
    """Keys or values of the earlier tokens: a new tensor for each token."""

    def __init__(self, context: torch.Tensor) -> None:
        self.context = self.all = context

    def start(self) -> None:
        self.all = self.context

    def add(self, new: torch.Tensor) -> torch.Tensor:
        self.all = torch.cat([self.all, new], dim=2)  # cause: grown_cache
        return self.all


class Allocated:
    """The same in a tensor with room for all tokens."""

    def __init__(self, context: torch.Tensor) -> None:
        sequences, heads, self.length, width = context.shape
        self.all = context.new_zeros(sequences, heads, CONTEXT + TOKENS, width)
        self.all[:, :, :self.length] = context

    def start(self) -> None:
        self.length = CONTEXT

    def add(self, new: torch.Tensor) -> torch.Tensor:
        self.all[:, :, self.length:self.length + 1] = new
        self.length += 1
        return self.all[:, :, :self.length]


@torch.no_grad()
def grown_cache(fixed: bool) -> Work:
    """Tokens are generated, and the cache of all earlier keys and values is copied for each. Fix: it has room from the
    beginning. After 64 tokens the generation starts again."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would build a kernel for each length
    torch.manual_seed(0)
    context = torch.randn(SEQUENCES, HEADS, CONTEXT, WIDTH, device="cuda", dtype=torch.bfloat16)
    caches = [[(Allocated if fixed else Grown)(context) for _ in range(2)] for _ in range(LAYERS)]
    first = torch.randn(SEQUENCES, HEADS, 1, WIDTH, device="cuda", dtype=torch.bfloat16)
    last = torch.zeros((), device="cuda")
    token = 0

    @torch.no_grad()
    def step() -> None:
        nonlocal token
        if token % TOKENS == 0:
            for cache in caches:
                cache[0].start()
                cache[1].start()
        token += 1
        x = first
        for keys, values in caches:
            x = x + functional.scaled_dot_product_attention(x, keys.add(x), values.add(x))
        last.copy_(x[0, 0, 0, 0])

    return Work(step, last.item, sync_every=16, warm_steps=TOKENS, cycle=TOKENS)
