"""Kernels of CuPy and Numba that pass over their arrays too often. Each library is loaded only by its own program."""

from __future__ import annotations

import functools

import numpy

from fixes import Work


def blended(x, y):
    """Ten operations on all values."""
    x = x * 1.1 + 0.1
    x = x * x - 0.5 * y
    x = (x + y) * 0.5
    return x * 0.9 - y * 0.1  # cause: cupy_chain


@functools.cache
def fused():
    import cupy

    return cupy.fuse()(blended)


def cupy_chain(fixed: bool) -> Work:
    """A formula of CuPy with a kernel for each operation. Fix: `cupy.fuse`."""
    import cupy

    x, y = (cupy.full(1 << 25, value, dtype=cupy.float32) for value in (0.5, 0.25))
    last = cupy.zeros((), dtype=cupy.float32)
    apply = fused() if fixed else blended

    def step() -> None:
        last[...] = apply(x, y)[0]

    return Work(step, lambda: float(last), synchronize=cupy.cuda.Device().synchronize)


@functools.cache
def scaling():
    from numba import config, cuda

    config.CUDA_WARN_ON_IMPLICIT_COPY = 0

    @cuda.jit
    def scale(values, by):
        index = cuda.grid(1)
        if index < values.size:
            values[index] = values[index] * by + by

    return scale


def numba_arrays(fixed: bool) -> Work:
    """Kernels of Numba work on an array of the host, which is copied there and back for each. Fix: it stays on the
    device."""
    from numba import cuda

    scale = scaling()
    host = numpy.full(1 << 20, 0.5, dtype=numpy.float32)
    values = cuda.to_device(host) if fixed else host
    by = numpy.float32(0.5)

    def step() -> None:
        for _ in range(4):
            scale[host.size // 256, 256](values, by)  # cause: numba_arrays

    def result() -> float:
        return float((values.copy_to_host() if fixed else values)[0])

    return Work(step, result, synchronize=cuda.synchronize)
