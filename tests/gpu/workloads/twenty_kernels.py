"""Twenty operations of five kinds, each ten times in a row: twenty_kernels.py SECONDS [profile]

Every operation follows itself, so that the caches are in the state that the replays of ncu leave too. With `profile` one
launch of each in the third round is between cudaProfilerStart and cudaProfilerStop, and after each a kernel that waits, as a
separator. Prints a line for each operation, `kind: name`, and the number of rounds.
"""

from __future__ import annotations

import sys
import time

import torch
from torch.nn import functional

IN_A_ROW = 10
PROFILED_ROUND, PROFILED = 2, 7


def operations() -> list:
    """Kind, name, operation. Sizes are far above or well below the L2 cache, so that hit rates are definite."""
    def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=dtype)

    single = torch.float32
    a, b, c, d = tensor(8192, 2048), tensor(2048, 8192), tensor(512, 16384), tensor(16384, 4096)
    e, f = tensor(4096, 4096, dtype=single), tensor(4096, 4096, dtype=single)
    many, more = tensor(64, 1024, 1024), tensor(64, 1024, 1024)
    wide, other = tensor(1 << 27, dtype=single), tensor(1 << 27, dtype=single)
    result, small = torch.empty_like(wide), tensor(1 << 20, dtype=single)
    rows, columns = tensor(65536, 2048), tensor(16384, 8192, dtype=single)
    query, key, value = (tensor(4, 16, 4096, 64) for _ in range(3))
    wider = [tensor(4, 16, 4096, 128) for _ in range(3)]
    scores, long = tensor(32768, 4096), tensor(2048, 65536, dtype=single)
    image, weights = (tensor(*shape).to(memory_format=torch.channels_last) for shape in ((64, 256, 56, 56), (256, 256, 3, 3)))
    depth = tensor(256, 1, 3, 3, dtype=single)
    pixels = tensor(64, 256, 56, 56, dtype=single)
    table, index = tensor(1 << 20, 128, dtype=single), torch.randint(1 << 20, (1 << 20,), device="cuda")
    gathered = torch.randint(1 << 27, (1 << 25,), device="cuda")
    return [
        ("matrix product", "large", lambda: a @ b), ("matrix product", "deep", lambda: c @ d),
        ("matrix product", "FP32", lambda: e @ f), ("matrix product", "batched", lambda: many @ more),
        ("elementwise", "add", lambda: torch.add(wide, other, out=result)), ("elementwise", "GELU", lambda: functional.gelu(rows)),
        ("elementwise", "in the L2 cache", lambda: small.mul_(1.0)), ("elementwise", "transposed copy", lambda: columns.t().contiguous()),
        ("reduction", "of rows", lambda: columns.sum(1)), ("reduction", "of columns", lambda: columns.sum(0)),
        ("reduction", "layer norm", lambda: functional.layer_norm(rows, (2048,))), ("reduction", "largest", lambda: columns.max(1)),
        ("softmax, attention", "attention", lambda: functional.scaled_dot_product_attention(query, key, value)),
        ("softmax, attention", "causal attention", lambda: functional.scaled_dot_product_attention(*wider, is_causal=True)),
        ("softmax, attention", "softmax", lambda: torch.softmax(scores, -1)), ("softmax, attention", "log softmax", lambda: torch.log_softmax(long, -1)),
        ("convolution, gather", "convolution", lambda: functional.conv2d(image, weights, padding=1)),
        ("convolution, gather", "by channel", lambda: functional.conv2d(pixels, depth, padding=1, groups=256)),
        ("convolution, gather", "of rows", lambda: table.index_select(0, index)),
        ("convolution, gather", "of elements", lambda: torch.take(wide, gathered))]


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    launches, profile = operations(), sys.argv[2:] == ["profile"]
    runtime = torch.cuda.cudart()
    end, rounds = time.monotonic() + float(sys.argv[1]), 0
    while time.monotonic() < end or rounds <= PROFILED_ROUND:
        for kind, name, operation in launches:
            for number in range(IN_A_ROW):
                here = profile and (rounds, number) == (PROFILED_ROUND, PROFILED)
                if here:
                    torch.cuda.synchronize()
                    runtime.cudaProfilerStart()
                operation()
                if here:
                    torch.cuda._sleep(1)
                    torch.cuda.synchronize()
                    runtime.cudaProfilerStop()
                    print(kind, name, sep=": ")
            torch.cuda.synchronize()
        rounds += 1
    print(f"{rounds} rounds")


if __name__ == "__main__":
    main()
