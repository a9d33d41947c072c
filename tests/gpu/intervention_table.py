"""The interventions: programs with one cause of slowness, the fix, the right bottleneck, and the scenario for the gain.

Half of them are held out. They were marked when the table was written, before any of the new programs had run on a GPU,
and no constant of the engine may be tuned with them. A row keeps its mark; a new program is marked before its first
run.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib

from harness import HERE, REPOSITORY

EXAMPLES = REPOSITORY / "examples" / "python"
FIXES = HERE / "workloads" / "interventions" / "fixes.py"
# Pairs of runs, before and after a fix.
ROUNDS = 3

# What a fix removes -> the scenario of the report that removes just that. The only place with the scenarios' names. A
# scenario that the report does not have counts as "no prediction".
SCENARIOS = {
    "launches": "launches_free",
    "waits": "no_syncs",
    "readbacks": "no_readbacks",
    "transfers to the host": "reads_reduced",
    "exposed copies": "copies_overlapped",
    "many copies": "copies_joined",
    "copies on the device": "device_copies_gone",
    "allocations": "no_allocations",
    "waits for data": "data_ready",
    "small grids": "grids_filled",
    "host work": "no_host_work",
}


@dataclasses.dataclass(frozen=True)
class Intervention:
    """A program before and after its fix.

    `removes` is a key of SCENARIOS, None if no scenario is about just that fix. `bottlenecks` are the causes that are
    right before it: more than one if two causes are equally right. `least_gain` is the gain that proves that the
    program is what it claims, None if a small gain is expected or the size is uncertain. `seconds` is the length of a
    run, `traced_seconds` that of the traced one, whose simulation takes some hundred steps. `rounds`: pairs of runs.

    `names` is a regular expression of words that a good answer contains, one of which is enough for a person to find the
    cause. `kind` groups programs with related causes.
    """

    fix: str
    bottlenecks: tuple[str, ...]
    removes: str | None
    held_out: bool
    before: tuple[str, ...]
    after: tuple[str, ...]
    script: pathlib.Path = FIXES
    libraries: str = "torch"
    least_gain: float | None = 1.10
    seconds: float = 0.8
    traced_seconds: float = 1.3
    rounds: int = ROUNDS
    kind: str = ""
    names: str = ""

    @property
    def scenario(self) -> str | None:
        return SCENARIOS[self.removes] if self.removes else None


def lesson(script: str, fix: str, bottleneck: str, removes: str | None, before: str, after: str) -> Intervention:
    """One of examples/python. The engine's constants come from these, so none of them is held out."""
    return Intervention(fix, (bottleneck,), removes, False, tuple(before.split()), tuple(after.split()), EXAMPLES / script)


def program(
        name: str, fix: str, bottlenecks: str, removes: str | None, held_out: bool = False, **more) -> Intervention:
    """One of workloads/interventions."""
    before = ("--program", name)
    return Intervention(fix, tuple(bottlenecks.split()), removes, held_out, before, (*before, "--fixed"), **more)


WORKERS = max(4, (os.cpu_count() or 4) - 4)
GRIDS = "--double --rows 16 --columns 65536"

INTERVENTIONS: dict[str, Intervention] = {
    # The lessons.
    "cuda_graph": lesson("04_launch_bound.py", "CUDA graph", "launch", "launches", "", "--graph"),
    "item_every_50": lesson("02_sync_item.py", "read every 50 steps", "sync", "waits", "", "--every 50"),
    "pinned_copies": lesson("03_pageable_copies.py", "pinned memory, own stream", "copy", "exposed copies", "", "--pinned"),
    "allocator_cache": lesson("07_allocator.py", "keep the cache", "allocator", "allocations", "", "--keep"),
    "loader_ready": lesson(
        "01_data_loading.py", "batches ready", "data_loading", "waits for data", "--layers 12", "--layers 12 --ready"),
    # Rows that stay in the L2 cache: no record contains the amount of memory that the blocks of one kernel share.
    "batched_grids": lesson("08_small_grids.py", "one kernel", "gpu_compute", "small grids", GRIDS, f"{GRIDS} --batched"),
    # Workers deliver what they can prepare, which is less than data that are always ready.
    "loader_workers": lesson(
        "01_data_loading.py", f"{WORKERS} workers", "data_loading", None, "", f"--workers {WORKERS}"),
    "one_stream": lesson("05_multi_stream.py", "own stream for copies", "copy", "exposed copies", "--one-stream", ""),

    # Launches. The first one is bound by its kernels: a graph saves the pauses between them and no more.
    "rnn_tiny": program("rnn_tiny", "CUDA graph", "gpu_compute", "launches", least_gain=None),
    "decode": program("decode", "CUDA graph", "launch", "launches", held_out=True),
    "cupy_elements": program("cupy_elements", "one kernel", "launch", "small grids", held_out=True, libraries="cupy"),
    "numba_grids": program("numba_grids", "one kernel", "gpu_compute", "small grids", libraries="numba.cuda"),

    # Waits and readbacks.
    "item_each_layer": program("item_each_layer", "no .item()", "sync", "readbacks"),
    "sync_each_op": program("sync_each_op", "no synchronize()", "sync", "waits", held_out=True),
    "print_loss": program("print_loss", "loss stays on the device", "sync", "readbacks", held_out=True),
    "clip_nonfinite": program("clip_nonfinite", "no check of the norm", "sync", "readbacks", held_out=True),

    # Copies.
    "logits": program("logits", "argmax on the device", "copy", "transfers to the host"),
    "copies_400": program("copies_400", "one copy", "copy launch", "many copies", held_out=True),
    "scalars": program("scalars", "one copy", "sync copy launch", "many copies", held_out=True),
    "non_blocking": program("non_blocking", "pinned memory", "copy", "exposed copies", held_out=True),
    "pageable_1": program("pageable_1", "pinned memory, own stream", "copy", "exposed copies"),
    "pageable_128": program("pageable_128", "pinned memory, own stream", "copy", "exposed copies", held_out=True),

    # Memory.
    "empty_cache": program("empty_cache", "no empty_cache()", "allocator", "allocations"),
    "host_register": program("host_register", "stays page-locked", "allocator", "allocations", held_out=True),
    "cupy_pool": program("cupy_pool", "memory pool", "allocator", "allocations", held_out=True, libraries="cupy"),

    # The host's work for batches.
    "loader_sleep": program("loader_sleep", "12 workers", "data_loading", "waits for data", held_out=True),
    "collate": program("collate", "8 workers", "data_loading", "waits for data", held_out=True),
    "augment_numpy": program("augment_numpy", "8 workers", "host_cpu", "host work"),
    "tokenize_json": program("tokenize_json", "8 workers", "host_cpu", "host work", held_out=True),
    "gc_collect": program("gc_collect", "no gc.collect()", "host_cpu", "host work"),

    # Without a matching scenario: the bottleneck is judged, and the gain is reported.
    "optimizer": program("optimizer", "fused Adam", "launch", None),
    "batch_rows": program("batch_rows", "one matrix product", "launch", None, held_out=True),
    "jax_jit": program("jax_jit", "jit", "launch", None, held_out=True, libraries="jax"),
    "numpy_round_trip": program("numpy_round_trip", "clamp on the device", "copy host_cpu", None, held_out=True),
    "bf16": program("bf16", "bf16", "gpu_compute", None, held_out=True, seconds=0.5),
    "channels_last": program("channels_last", "channels last", "gpu_compute", None, held_out=True, seconds=0.5, least_gain=None),
    "elementwise": program("elementwise", "torch.compile", "gpu_compute", None, seconds=0.5),
    "attention": program("attention", "fused attention", "gpu_compute", None, seconds=0.5),
}
