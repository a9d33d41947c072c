"""Programs of CuPy, Numba and mpi4py."""

from __future__ import annotations

import numpy

from programs import loop, say


def cupy() -> None:
    """Streams, a raw kernel, a reduction and a graph."""
    import cupy as library

    raw = library.RawKernel(
        'extern "C" __global__ void scale(float *v, float by, int n) { int i = blockDim.x * blockIdx.x + threadIdx.x; '
        "if (i < n) v[i] = v[i] * by + 1.0f; }", "scale")
    streams = [library.cuda.Stream(non_blocking=True) for _ in range(2)]
    values = [library.arange(1 << 16, dtype=library.float32) for _ in streams]
    library.cuda.Device().synchronize()

    def step(_: int) -> None:
        for stream, value in zip(streams, values):
            with stream:
                raw((256,), (256,), (value, library.float32(0.5), library.int32(1 << 16)))
                value += library.sqrt(value) * 0.01

    loop(1500, step, library.cuda.Device().synchronize)
    say(sum(float(value.sum()) for value in values))


def numba() -> None:
    """A kernel compiled from Python."""
    from numba import cuda

    @cuda.jit
    def scale(values, by):
        index = cuda.grid(1)
        if index < values.size:
            values[index] = values[index] * by + 1.0

    values = cuda.to_device(numpy.arange(1 << 16, dtype=numpy.float64))
    loop(1500, lambda _: scale[256, 256](values, 0.5), cuda.synchronize)
    say(values.copy_to_host().sum())


def mpi() -> None:
    """mpi4py with one rank, and buffers of CuPy."""
    try:
        from mpi4py import MPI
    except RuntimeError as error:  # no MPI library
        raise ImportError(str(error)) from error
    import cupy as library

    values = library.ones(1 << 12, dtype=library.float32)

    def step(_: int) -> None:
        nonlocal values
        host = library.asnumpy(values)
        total = numpy.empty_like(host)
        MPI.COMM_WORLD.Allreduce(host, total)
        values = library.asarray(total) * 0.5 + 1

    loop(500, step, library.cuda.Device().synchronize)
    say(values.sum())


PROGRAMS = {"cupy": cupy, "numba": numba, "mpi": mpi}
