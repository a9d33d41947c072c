"""Programs of JAX: XLA turns most of them into CUDA graphs, which it updates and launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax import lax

from programs import loop, say

WIDTH, LAYERS, BATCH = 1024, 8, 512
KEY = jax.random.PRNGKey(0)
# Learning rate of Adam. Small: XLA chooses kernels by timing them, and larger steps amplify differences in the last
# bit.
RATE = 1e-6


def data() -> tuple[list[jax.Array], jax.Array, jax.Array]:
    """Weights, inputs and targets of a perceptron."""
    weights = [jax.random.normal(KEY, (WIDTH, WIDTH)) / 32 for _ in range(LAYERS)]
    return weights, jax.random.normal(KEY, (BATCH, WIDTH)), jnp.ones((BATCH, WIDTH))


def loss(weights: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    for weight in weights:
        x = jnp.tanh(x @ weight)
    return ((x - y) ** 2).mean()


def descend(weights: Any, gradients: Any) -> Any:
    return jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient, weights, gradients)


def run(step: Callable[[Any], Any], state: Any, result: Callable[[Any], object], steps: int = 1500) -> None:
    """Runs `state = step(state)`."""

    def once(index: int) -> None:
        nonlocal state
        state = step(state)
        if index % 100 == 99:
            jax.block_until_ready(state)

    loop(steps, once, lambda: jax.block_until_ready(state))
    say(result(state))


def plain() -> None:
    """A training step under jit."""
    weights, x, y = data()
    step = jax.jit(lambda weights: descend(weights, jax.grad(loss)(weights, x, y)))
    run(step, weights, lambda weights: loss(weights, x, y))


def adam(donate: bool) -> Callable[[], None]:
    """A step of Adam whose graph also copies: its counter is returned unchanged. Buffers may be donated."""

    def program() -> None:
        weights, x, y = data()

        def step(state: Any) -> Any:
            weights, first, second, count = state
            count = count + 1
            gradients = jax.grad(loss)(weights, x, y)
            first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
            second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)
            scale = RATE / (1 - 0.9**count)
            weights = jax.tree.map(lambda w, m, v: w - scale * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
            return weights, first, second, count

        zeros = [jax.tree.map(jnp.zeros_like, weights) for _ in range(2)]
        compiled = jax.jit(step, donate_argnums=(0,) if donate else ())
        run(compiled, (weights, *zeros, jnp.zeros((), jnp.int32)), lambda state: loss(state[0], x, y))

    return program


def counted() -> None:
    """Descent with a counter: one copy of four bytes in a graph of kernels."""
    weights, x, y = data()
    step = jax.jit(lambda state: (descend(state[0], jax.grad(loss)(state[0], x, y)), state[1] + 1))
    run(step, (weights, jnp.zeros((), jnp.int32)), lambda state: loss(state[0], x, y))


def optax() -> None:
    """Adam of optax with donated buffers."""
    import optax as library

    weights, x, y = data()
    optimizer = library.adam(RATE)

    def step(state: Any) -> Any:
        weights, inner = state
        updates, inner = optimizer.update(jax.grad(loss)(weights, x, y), inner)
        return library.apply_updates(weights, updates), inner

    run(jax.jit(step, donate_argnums=(0,)), (weights, optimizer.init(weights)), lambda state: loss(state[0], x, y))


def scan() -> None:
    """Twenty steps in one scan."""
    weights, x, y = data()
    steps = lambda weights: lax.scan(lambda w, _: (descend(w, jax.grad(loss)(w, x, y)), None), weights, None, length=20)[0]
    run(jax.jit(steps), weights, lambda weights: loss(weights, x, y), steps=60)


def control() -> None:
    """while_loop and cond, whose conditions the host may have to read."""
    weights, x, _ = data()
    turns = lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, jnp.tanh(c[1] @ weights[0])), (0, x))[1]
    branch = lambda x: lax.cond(x[0, 0] > 0, lambda x: jnp.tanh(x @ weights[1]), lambda x: jnp.sin(x @ weights[2]), x)
    run(jax.jit(lambda x: branch(turns(x))), x, lambda x: jnp.abs(x).mean(), steps=400)


def sharded() -> None:
    """shard_map over a mesh of the available devices, possibly one."""
    from jax.sharding import Mesh, PartitionSpec

    weights, x, _ = data()
    mesh = Mesh(numpy.array(jax.devices()[:1]), ("batch",))
    body = lambda x: x - 0.01 * lax.psum(jnp.tanh(x @ weights[0]), "batch")
    mapped = jax.shard_map(body, mesh=mesh, in_specs=PartitionSpec("batch"), out_specs=PartitionSpec("batch"))
    run(jax.jit(mapped), x, lambda x: jnp.abs(x).mean())


def shapes() -> None:
    """Batches of four sizes, so that programs and their graphs alternate; inputs come from the host."""
    weights, x, y = data()
    batches = [(numpy.asarray(x[: 64 * n]), numpy.asarray(y[: 64 * n])) for n in (1, 2, 4, 8)]
    step = jax.jit(lambda weights, x, y: descend(weights, jax.grad(loss)(weights, x, y)))
    index = iter(range(10**9))
    run(lambda weights: step(weights, *batches[next(index) % 4]), weights, lambda weights: loss(weights, x, y), steps=400)


def beside_torch() -> None:
    """JAX and PyTorch in one process, alternating."""
    import torch

    weights, x, y = data()
    step = jax.jit(lambda state: (descend(state[0], jax.grad(loss)(state[0], x, y)), state[1] + 1))
    values = torch.ones(512, 512, device="cuda")

    def both(state: Any) -> Any:
        values.mul_(0.999).add_(values.mean() * 0.001)
        return step(state)

    run(both, (weights, jnp.zeros((), jnp.int32)), lambda state: loss(state[0], x, y), steps=800)
    say(values.sum().item())


PROGRAMS = {
    "plain": plain, "adam": adam(donate=False), "donated": adam(donate=True), "counted": counted, "optax": optax, "scan": scan,
    "control": control, "sharded": sharded, "shapes": shapes, "beside_torch": beside_torch}
