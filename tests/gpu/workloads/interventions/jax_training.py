"""Training with JAX, which only its own program loads."""

from __future__ import annotations

import functools

from fixes import Work


@functools.cache
def updates():
    """The update of the weights, as it is and compiled. A process compiles once."""
    import jax
    from jax import numpy as jnp

    def loss(weights: list, rows: jax.Array, wanted: jax.Array) -> jax.Array:
        x = rows
        for matrix, shift in weights[:-1]:
            x = jax.nn.relu(x @ matrix + shift)
        matrix, shift = weights[-1]
        return jnp.mean((x @ matrix + shift - wanted) ** 2)

    def update(weights: list, rows: jax.Array, wanted: jax.Array) -> list:
        slopes = jax.grad(loss)(weights, rows, wanted)  # cause: jax_regression
        return jax.tree.map(lambda weight, slope: weight - 0.01 * slope, weights, slopes)  # cause: jax_regression

    return update, jax.jit(update)


def jax_regression(fixed: bool) -> Work:
    """A perceptron is trained one operation at a time. Fix: `jax.jit` around the update."""
    import jax
    from jax import numpy as jnp

    keys = jax.random.split(jax.random.PRNGKey(0), 6)
    widths = [64, 256, 256, 256, 256, 64]
    pairs = zip(widths, widths[1:])
    weights = [(jax.random.normal(key, pair) / pair[0] ** 0.5, jnp.zeros(pair[1])) for key, pair in zip(keys, pairs)]
    rows = jax.random.normal(keys[-1], (1024, 64))
    wanted = jnp.sin(rows)
    update = updates()[fixed]

    def step() -> None:
        nonlocal weights
        weights = update(weights, rows, wanted)

    return Work(
        step, lambda: float(jnp.abs(weights[0][0]).mean()), synchronize=lambda: jax.block_until_ready(weights))
