"""Steps of a small decoder as CUDA graphs, or eagerly with a range around what each module itself launches.

`decode` runs small steps for some seconds, and `resnet` a compiled ResNet-18. The last line printed is JSON: the number of
steps, the milliseconds of the first one (capture included), and of later ones; for `decode` of those in the last third.
"""

import argparse
import contextlib
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, TOKENS = 768, 12, 6, 256


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (part.view(batch, tokens, HEADS, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH))


class GatedMlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.second_norm, self.mlp = nn.LayerNorm(WIDTH), GatedMlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self.second_norm(x))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(LAYERS)), nn.Linear(WIDTH, 8192, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def resnet() -> nn.Module:
    import torchvision

    return torchvision.models.resnet18()


def name_modules(model: nn.Module) -> None:
    """Opens a range where a module starts to launch itself, and ends it where another one does."""
    stack: list[str] = []

    def enter(module: nn.Module, _inputs: object) -> None:
        if stack:
            torch.cuda.nvtx.range_pop()
        stack.append(type(module).__name__)
        torch.cuda.nvtx.range_push(f"module {stack[-1]}")

    def leave(_module: nn.Module, _inputs: object, _output: object) -> None:
        torch.cuda.nvtx.range_pop()
        stack.pop()
        if stack:
            torch.cuda.nvtx.range_push(f"module {stack[-1]}")

    for module in model.modules():
        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=("inference", "training", "compiled", "decode", "resnet"))
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.0, help="run for so long instead")
    options = parser.parse_args()
    torch.manual_seed(1)
    is_training = options.program == "training"
    is_compiled = options.program in ("compiled", "resnet")
    tokens, batch = (1, 1) if options.program == "decode" else (TOKENS, 4)
    model = resnet() if options.program == "resnet" else Decoder()
    model = model.cuda().to(torch.bfloat16).train(is_training)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True) if is_training else None
    shape = (32, 3, 224, 224) if options.program == "resnet" else (batch, tokens, WIDTH)
    x = torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    if options.eager:
        name_modules(model)

    run = torch.compile(model, mode="reduce-overhead") if is_compiled and not options.eager else model

    def step() -> None:
        with contextlib.nullcontext() if optimizer else torch.no_grad():
            out = run(x)
        if optimizer:
            optimizer.zero_grad(set_to_none=True)
            out.float().square().mean().backward()
            optimizer.step()

    # Libraries initialize themselves at their first call, which must not happen during a capture.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(1 if options.eager or is_compiled else 3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    if options.eager or is_compiled:
        again = step
        for _ in range(3):
            step()
    else:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            step()
        again = captured.replay
    torch.cuda.synchronize()
    first = time.perf_counter() - begun
    times = []
    until = time.perf_counter() + options.seconds
    while len(times) < options.steps or time.perf_counter() < until:
        begun = time.perf_counter()
        again()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    last = times[2 * len(times) // 3 :] if options.program == "decode" else times
    print(json.dumps({"steps": len(times), "first_ms": 1e3 * first, "step_ms": 1e3 * statistics.median(last)}))


if __name__ == "__main__":
    main()
