"""Kernels that could be better inside: wasted work of a unit, or an underused GPU."""

from __future__ import annotations

import ctypes
import pathlib
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from fixes import Work

# The folder above has modules that programs of other folders use, too.
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import nvrtc  # noqa: E402

# A tile of 32 rows: a column of it lies in one bank unless rows are one element longer.
TRANSPOSE = r"""
extern "C" __global__ void k_transpose(const float *from, float *to, int side) {
    __shared__ float tile[32][32 + PAD];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8) tile[threadIdx.y + i][threadIdx.x] = from[(size_t)(y + i) * side + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8) to[(size_t)(y + i) * side + x] = tile[threadIdx.x][threadIdx.y + i];
}
"""
SIDE = 8192


@torch.no_grad()
def bank_conflicts(fixed: bool) -> Work:
    """A transpose through shared memory in which 32 threads access one bank. Fix: rows are padded by one element."""
    torch.manual_seed(0)
    source = torch.randn(SIDE, SIDE, device="cuda")
    result = torch.empty(SIDE, SIDE, device="cuda")
    code = TRANSPOSE.replace("PAD", "1" if fixed else "0")
    module = nvrtc.Module(code.encode(), "transpose.cu")
    side, blocks = ctypes.c_int(SIDE), SIDE // 32

    def step() -> None:
        for _ in range(4):
            module.launch("k_transpose", (blocks, blocks, 1), (32, 8, 1), source, result, side)

    return Work(step, lambda: result[1, 2].item())


SMALL_BATCH, LARGE_BATCH = 1, 4


@torch.no_grad()
def small_batch(fixed: bool) -> Work:
    """New tokens of one sequence attend to a long context: each block has 64 of them, so most of the GPU is without a
    block. Fix: a step takes four sequences at once, so it is worth four of the others."""
    torch.manual_seed(0)
    batch = LARGE_BATCH if fixed else SMALL_BATCH
    new, context = (torch.randn(batch, 1, tokens, 64, device="cuda", dtype=torch.float16) for tokens in (2048, 32768))
    last = torch.zeros((), device="cuda")

    @torch.no_grad()
    def step() -> None:
        # The backend that does not divide the context among blocks; the second one is for a host without a GPU.
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], set_priority=True):
            x = scaled_dot_product_attention(new, context, context)
        last.copy_(x[0, 0, 0, 0])

    return Work(step, last.item)
