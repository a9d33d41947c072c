"""Language models whose attention, loss or pooling is written out."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from fixes import Work


@torch.no_grad()
def long_documents(fixed: bool) -> Work:
    """Documents of 4,096 words are embedded by a BERT of transformers with eager attention. Fix: SDPA."""
    from transformers import AutoModel, BertConfig

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=8192, hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=1024,
        max_position_embeddings=4096)
    model = AutoModel.from_config(config, attn_implementation="sdpa" if fixed else "eager")
    model = model.to("cuda", torch.bfloat16).eval()
    words = torch.randint(0, 8192, (2, 4096), device="cuda")
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        last.copy_(model(input_ids=words).last_hidden_state[0, 0, 0])

    return Work(step, last.item, sync_every=10)


class CausalAttention(nn.Module):
    """Attention of a decoder, as tutorials write it."""

    def __init__(self, width: int, heads: int, length: int, fixed: bool) -> None:
        super().__init__()
        self.heads, self.rate, self.fixed = heads, 0.1, fixed
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("causal", torch.tril(torch.ones(length, length, dtype=torch.bool)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if self.fixed:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.rate)
        else:
            scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1])  # cause: decoder_attention
            scores = scores.masked_fill(~self.causal[:length, :length], float("-inf"))  # cause: decoder_attention
            weights = scores.float().softmax(dim=-1).to(x.dtype)  # cause: decoder_attention
            weights = functional.dropout(weights, self.rate)  # cause: decoder_attention
            y = torch.einsum("bhij,bhjd->bhid", weights, v)  # cause: decoder_attention
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class DecoderBlock(nn.Module):
    """A block of GPT-2."""

    def __init__(self, width: int, fixed: bool) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = CausalAttention(width, 12, 1024, fixed)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        return x + self.wide(self.between(x))


def decoder_attention(fixed: bool) -> Work:
    """A decoder in bf16 is trained with attention by hand, with dropout. Fix: `scaled_dot_product_attention`."""
    torch.manual_seed(0)
    model = nn.Sequential(*(DecoderBlock(768, fixed) for _ in range(3))).to("cuda", torch.bfloat16)
    states = torch.randn(4, 1024, 768, device="cuda", dtype=torch.bfloat16)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    last = torch.zeros((), device="cuda")

    def step() -> None:
        loss = model(states).float().square().mean()
        loss.backward()
        adam.step()
        adam.zero_grad()
        last.copy_(loss.detach())

    return Work(step, last.item, sync_every=10)


WORDS = 32_000


def smoothed(logits: torch.Tensor, targets: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Cross entropy with smoothed labels, as its paper writes it."""
    logs = torch.log_softmax(logits, dim=-1)  # cause: smoothed_loss
    wanted = functional.one_hot(targets, logits.shape[-1]).to(logits.dtype)  # cause: smoothed_loss
    wanted = (1.0 - epsilon) * wanted + epsilon / logits.shape[-1]  # cause: smoothed_loss
    return -(wanted * logs).sum(dim=-1).mean()  # cause: smoothed_loss


def smoothed_loss(fixed: bool) -> Work:
    """The loss over 32,000 words builds its smoothed labels. Fix: `F.cross_entropy(..., label_smoothing=0.1)`."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(WORDS, 512), nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, WORDS, bias=False))
    model = model.to("cuda", torch.bfloat16)
    words, following = (torch.randint(0, WORDS, (2048,), device="cuda") for _ in range(2))
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    last = torch.zeros((), device="cuda")

    def step() -> None:
        logits = model(words).float()
        if fixed:
            loss = functional.cross_entropy(logits, following, label_smoothing=0.1)
        else:
            loss = smoothed(logits, following, 0.1)
        loss.backward()
        sgd.step()
        sgd.zero_grad()
        last.copy_(loss.detach())

    return Work(step, last.item, sync_every=10)


class SentenceEncoder(nn.Module):
    """Sentences to vectors: the mean of the states of their words, without padding."""

    def __init__(self, width: int, layers: int, fixed: bool) -> None:
        super().__init__()
        self.fixed, self.words = fixed, nn.Embedding(20_000, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(layers))

    def forward(self, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        for layer in self.layers:
            x = x + layer(x)
        if self.fixed:
            weights = mask.unsqueeze(-1).to(x.dtype)
            vectors = (x * weights).sum(dim=1) / weights.sum(dim=1)
        else:
            means = [states[kept].mean(dim=0) for states, kept in zip(x, mask)]  # cause: pooled_sentences
            vectors = torch.stack(means)
        return functional.normalize(vectors, dim=-1)


@torch.no_grad()
def pooled_sentences(fixed: bool) -> Work:
    """Padding is left out of each sentence with a mask as an index. Fix: states are multiplied by the mask."""
    torch.manual_seed(0)
    model = SentenceEncoder(384, 3, fixed).to("cuda").eval()
    words = torch.randint(0, 20_000, (48, 64), device="cuda")
    lengths = torch.randint(8, 64, (48, 1), device="cuda")
    mask = torch.arange(64, device="cuda") < lengths
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        last.copy_(model(words, mask)[0, 0])

    return Work(step, last.item)
