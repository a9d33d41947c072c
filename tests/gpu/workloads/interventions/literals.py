"""A kernel of CuPy whose source contains a number that changes."""

from __future__ import annotations

import functools
import os
import random

from fixes import Work

BUILT = """
extern "C" __global__ void decay(float *values, int count) {
    int place = blockDim.x * blockIdx.x + threadIdx.x;
    if (place < count) values[place] = values[place] * RATEf + 1e-3f;
}
"""
PLAIN = """
extern "C" __global__ void decay(float *values, int count, float rate) {
    int place = blockDim.x * blockIdx.x + threadIdx.x;
    if (place < count) values[place] = values[place] * rate + 1e-3f;
}
"""
# CuPy keeps what it compiled in files, so each process takes rates that no other has had.
chance = random.Random(os.urandom(8))


@functools.cache
def plain():
    import cupy

    return cupy.RawKernel(PLAIN, "decay")


def cupy_literals(fixed: bool) -> Work:
    """The rate of a schedule is written into the source of a kernel, which is compiled for each new rate, every fourth
    step. Fix: the rate is an argument."""
    import cupy

    values = cupy.full(1 << 24, 0.5, dtype=cupy.float32)
    left = cupy.full((2048, 2048), 0.01, dtype=cupy.float32)
    count, blocks = cupy.int32(values.size), (values.size // 256,)
    rate, number = 0.9, 0
    kernel = plain()

    def step() -> None:
        nonlocal kernel, number, rate
        if number % 4 == 0:
            rate = 0.9 + chance.randrange(10**9) * 1e-12
            if not fixed:
                kernel = cupy.RawKernel(BUILT.replace("RATE", f"{rate:.12f}"), "decay")  # cause: cupy_literals
        number += 1
        cupy.matmul(left, left)
        if fixed:
            kernel(blocks, (256,), (values, count, cupy.float32(rate)))
        else:
            kernel(blocks, (256,), (values, count))  # cause: cupy_literals

    return Work(step, lambda: float(values[0]), synchronize=cupy.cuda.Device().synchronize, cycle=4, warm_steps=4)
