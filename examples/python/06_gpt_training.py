"""Lesson 6: nothing to fix on the host.

A transformer of GPT-2 medium's width in bf16, with a batch large enough to keep the device busy. The host is always
a full step ahead. Only the kernels themselves limit the program.

Bottleneck: `gpu_compute`

    CUDA_INJECTION64_PATH=libprof.so python 06_gpt_training.py
    CUDA_INJECTION64_PATH=libprof.so python 06_gpt_training.py --batch 1 --context 64  # too small: launch-bound
"""

import argparse
import time

import torch


class Block(torch.nn.Module):
    """Pre-norm attention and a feed-forward layer four times as wide."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.feed = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = torch.nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.norms[1](x))


class Gpt(torch.nn.Module):
    def __init__(self, vocabulary: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.positions = torch.nn.Parameter(torch.zeros(context, width))
        self.blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.tokens(tokens) + self.positions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--steps", type=int, help="stop after so many steps instead")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=1024, help="tokens in a sequence")
    options = parser.parse_args()

    torch.manual_seed(0)
    vocabulary = 32768
    model = Gpt(vocabulary, options.context, width=1024, heads=16, layers=12).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(vocabulary, (options.batch, options.context + 1), device="cuda")

    steps, began = 0, time.perf_counter()
    while steps != options.steps and (options.steps or time.perf_counter() - began < options.seconds):
        optimizer.zero_grad(set_to_none=True)
        logits = model(tokens[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        steps += 1
        if steps % 10 == 0:
            torch.cuda.synchronize()  # the clock must not run ahead of the device
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.2f} steps/s")


if __name__ == "__main__":
    main()
