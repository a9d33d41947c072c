"""The same mistakes in CuPy, JAX and Numba. Each library is loaded only by its own program."""

from __future__ import annotations

import functools
import os

import numpy

from fixes import Work

# A process must not take most of the device: other processes wait on it for their run.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def cupy_pool(fixed: bool) -> Work:
    """CuPy without its memory pool: each temporary array is allocated and freed by the driver. Fix: the pool."""
    import cupy

    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc if fixed else None)
    values = cupy.full((2048, 2048), 0.5, dtype=cupy.float32)
    last = cupy.zeros((), dtype=cupy.float32)

    def step() -> None:
        x = values
        for _ in range(8):
            x = cupy.sqrt(x * x + 1.0) * 0.5
        last[...] = x[0, 0]

    return Work(step, lambda: float(last), synchronize=cupy.cuda.Device().synchronize)


def cupy_elements(fixed: bool) -> Work:
    """A kernel for each of 128 parts of an array, concurrent with a matrix product. Fix: one kernel for all parts."""
    import cupy

    scale = cupy.RawKernel(
        'extern "C" __global__ void scale(float *v, float by) { int i = blockDim.x * blockIdx.x + threadIdx.x; '
        "v[i] = v[i] * by + 1.0f; }", "scale")
    values = cupy.zeros(128 * 256, dtype=cupy.float32)
    parts = [values[start:start + 256] for start in range(0, values.size, 256)]
    left, right = (cupy.full(shape, 0.01, dtype=cupy.float32) for shape in ((2048, 1024), (1024, 1024)))
    by = cupy.float32(0.5)

    def step() -> None:
        cupy.matmul(left, right)
        if fixed:
            scale((128,), (256,), (values, by))
        else:
            for part in parts:
                scale((1,), (256,), (part, by))

    return Work(step, lambda: float(values.sum()), synchronize=cupy.cuda.Device().synchronize)


@functools.cache
def layers():
    """A perceptron of 24 layers, as it is and compiled."""
    import jax
    from jax import numpy as jnp

    def forward(weights: list, x: jax.Array) -> jax.Array:
        for weight in weights:
            x = jnp.tanh(x @ weight) + 0.1 * x
        return x

    return forward, jax.jit(forward)


def jax_jit(fixed: bool) -> Work:
    """JAX without jit: one operation at a time. Fix: jit."""
    import jax
    from jax import numpy as jnp

    key = jax.random.PRNGKey(0)
    weights = [jax.random.normal(key, (512, 512)) / 23 for _ in range(24)]
    x = jnp.ones((128, 512))
    forward = layers()[fixed]

    def step() -> None:
        nonlocal x
        x = forward(weights, x)

    return Work(step, lambda: float(jnp.abs(x).mean()), synchronize=lambda: jax.block_until_ready(x))


@functools.cache
def numba_kernel():
    from numba import config, cuda

    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0

    @cuda.jit
    def turn(values, by, rounds):
        index = cuda.grid(1)
        if index < values.size:
            value = values[index]
            for _ in range(rounds):
                value = value * by + by
            values[index] = value

    return turn


def numba_grids(fixed: bool) -> Work:
    """32 kernels of four blocks, one after the other. Fix: one kernel of 128 blocks."""
    from numba import cuda

    turn = numba_kernel()
    values = cuda.to_device(numpy.full(128 * 128, 0.5, dtype=numpy.float32))
    parts = [values[start:start + 512] for start in range(0, values.size, 512)]
    by, rounds = numpy.float32(0.5), numpy.int32(50_000)

    def step() -> None:
        if fixed:
            turn[128, 128](values, by, rounds)
        else:
            for part in parts:
                turn[4, 128](part, by, rounds)

    return Work(step, lambda: float(values.copy_to_host().sum()), synchronize=cuda.synchronize)
