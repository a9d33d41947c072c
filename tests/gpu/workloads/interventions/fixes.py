"""Small programs with one cause of slowness, and its fix: `python fixes.py --program NAME [--fixed]`.

Each repeats a step, prints its rate after start-up (`123.4 steps/s`) and ends. `--steps N` runs exactly this many steps
and also prints a number that they computed, so that two runs can be compared. The programs are grouped by the subject
of the fix: launches, waits, copies, memory, loading, compute, the inside of kernels, and arrays for libraries other
than PyTorch. Further ones are grouped by the kind of their cause; the line that causes the slowness has a comment
`# cause: NAME` there. Some have nothing to fix: the report must not invent something.

Exit status 77: a library that the program needs is not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import functools
import importlib
import sys
import time
from collections.abc import Callable, Iterator

NOT_INSTALLED = 77
# Time that is left out before the clock starts: libraries load code and choose algorithms, queues fill.
WARM_SECONDS = 0.2

# Program -> module that contains it.
PROGRAMS = {
    **dict.fromkeys(("rnn_tiny", "decode", "optimizer", "batch_rows"), "launches"),
    **dict.fromkeys(("item_each_layer", "sync_each_op", "print_loss", "clip_nonfinite"), "waits"),
    **dict.fromkeys(
        ("logits", "copies_400", "scalars", "non_blocking", "pageable_1", "pageable_128", "numpy_round_trip"), "copies"),
    **dict.fromkeys(("empty_cache", "host_register"), "memory"),
    **dict.fromkeys(("loader_sleep", "collate", "augment_numpy", "tokenize_json", "gc_collect"), "loading"),
    **dict.fromkeys(("bf16", "channels_last", "elementwise", "attention"), "compute"),
    **dict.fromkeys(("bank_conflicts", "small_batch"), "inside"),
    **dict.fromkeys(("cupy_pool", "cupy_elements", "jax_jit", "numba_grids"), "arrays"),
    **dict.fromkeys(("backoff", "flushed_log", "numpy_rows", "shell_stats"), "host_work"),
    **dict.fromkeys(("clones", "sample_copies", "score_map", "checkpoint"), "moving"),
    **dict.fromkeys(("cudnn_shapes", "triton_constants", "compile_shapes"), "builds"),
    "cupy_literals": "literals",
    **dict.fromkeys(("pool_launches", "gil_thread", "queue_thread"), "threads"),
    **dict.fromkeys(("shared_products", "shared_filter"), "sharing"),
    **dict.fromkeys(("load_then_train", "train_then_export"), "phases"),
    **dict.fromkeys(("replay_gap", "replay_readback", "layer_graphs"), "replays"),
    **dict.fromkeys(("compiled_records", "compiled_poll"), "compiled"),
    **dict.fromkeys(("decode_inline", "ragged_collate", "short_prefetch", "short_epochs"), "loaders"),
    **dict.fromkeys(("kept_tokens", "found_boxes", "early_exit", "finite_gradients"), "reads"),
    **dict.fromkeys(
        ("tf32_training", "tf32_small", "autocast_convolutions", "odd_vocabulary", "autocast_casts", "double_chain", "mixed_buffers",
         "roof_products"), "precision"),
    **dict.fromkeys(("layout_resnet", "one_convolution", "kept_layout"), "layouts"),
    **dict.fromkeys(("masked_attention", "built_masks", "single_attention", "grown_cache"), "attended"),
    **dict.fromkeys(("gelu_by_hand", "rmsnorm_by_hand", "color_chain"), "fusions"),
    **dict.fromkeys(("index_gradient", "sorted_scores", "unsized_repeat"), "chosen_rows"),
    **dict.fromkeys(("foreach_adam", "loop_adamw"), "updates"),
    **dict.fromkeys(("separate_experts", "dependent_layers", "single_samples", "lstm_cells"), "units"),
    **dict.fromkeys(("timed_phases", "anomaly_mode", "asserted_layers", "new_scalars", "quiet_clip"), "debugging"),
    **dict.fromkeys(
        ("parsed_records", "pageable_training", "frozen_heap", "saved_steps", "request_cache", "rate_limited"), "around_steps"),
    **dict.fromkeys(("cupy_chain", "numba_arrays"), "array_chains"),
    **dict.fromkeys(("volume_segmenter", "speech_encoder", "unet_server", "point_layers"), "networks"),
    **dict.fromkeys(("long_documents", "decoder_attention", "smoothed_loss", "pooled_sentences"), "language"),
    **dict.fromkeys(("dropout_samples", "graph_messages"), "vectors"),
    **dict.fromkeys(("nesterov_loop", "policy_steps", "checked_gan", "clipped_by_hand", "micro_batches"), "loops"),
    **dict.fromkeys(("categorical_copies", "class_maps", "decoded_images", "recorded_lengths"), "feeds"),
    "jax_regression": "jax_training",
    **dict.fromkeys(
        ("small_layers", "trained_layers", "filled_memory", "rows_one_by_one", "generated_text", "stream_chains",
         "fresh_buffers", "pinned_waits", "adamax_loop", "kept_gradients", "four_lengths"), "outside"),
    "scored_batches": "scoring",
    **dict.fromkeys(("tuned_decoder", "rare_reads", "summed_fields", "arriving_requests"), "healthy"),
}


@dataclasses.dataclass
class Work:
    """A step to repeat. The program waits for the device every `sync_every` steps, as a training loop does when it
    logs: the clock must not run ahead of the device. `result` is a number that the steps computed.

    Steps that differ repeat after `cycle` steps, and the loop ends after whole cycles, so that its rate is that of all
    of them. `begin` runs before the clock starts, so that the first cycle is whole. `end` ends threads and other
    processes: the process may wait for its next run.
    """

    step: Callable[[], object]
    result: Callable[[], float]
    sync_every: int = 20
    warm_steps: int = 3
    synchronize: Callable[[], object] | None = None
    cycle: int = 1
    begin: Callable[[], object] | None = None
    end: Callable[[], object] | None = None


def synchronizer(work: Work) -> Callable[[], object]:
    if work.synchronize is not None:
        return work.synchronize
    import torch

    return torch.cuda.synchronize


def repeat(work: Work, synchronize: Callable[[], object], steps: int | None, seconds: float, cycle: int = 1) -> float:
    """Runs this many steps, or whole cycles for this long. Returns steps per second."""
    done, began = 0, time.perf_counter()
    while done != steps and (steps or done % cycle or time.perf_counter() - began < seconds):
        work.step()
        done += 1
        if done % work.sync_every == 0:
            synchronize()
    synchronize()
    return done / (time.perf_counter() - began)


def measure(work: Work, steps: int | None, seconds: float, warm: float) -> None:
    """Starts up, measures the rate and prints it."""
    synchronize = synchronizer(work)
    try:
        repeat(work, synchronize, work.warm_steps, 0.0)
        if not steps:
            repeat(work, synchronize, None, warm)
        if work.begin is not None:
            work.begin()
        rate = repeat(work, synchronize, steps, seconds, work.cycle)
        print(f"{rate:.3f} steps/s", flush=True)
        if steps:
            print(f"result {work.result():.4g}", flush=True)
    finally:
        if work.end is not None:
            work.end()


# Bytes of the file of turns, for locks.
LOADING, MEASURING, DEVICE = range(3)


@contextlib.contextmanager
def turn(file: str | None, is_loaded: bool) -> Iterator[Callable[[], None]]:
    """Programs with the same file load their libraries at the same time, and then run one after the other while none of
    them loads: it would create a context, which delays every allocation on the device. Yields a function that waits for
    the turn. Locks end with the process, and its children do not inherit them.

    The file has one byte for each turn so far of a program that was not loaded before.
    """
    if file is None:
        yield lambda: None
        return
    with open(file, "a+b", buffering=0) as held:

        def lock(how: int, part: int) -> None:
            fcntl.lockf(held, how, 1, part)

        if not is_loaded:
            # Those that have loaded measure first.
            lock(fcntl.LOCK_EX, MEASURING)
            lock(fcntl.LOCK_SH, LOADING)
            lock(fcntl.LOCK_UN, MEASURING)

        def ready() -> None:
            import torch

            torch.cuda.synchronize()  # creates the context
            lock(fcntl.LOCK_SH, MEASURING)
            lock(fcntl.LOCK_UN, LOADING)
            lock(fcntl.LOCK_EX, LOADING)  # when no other program has it any more
            lock(fcntl.LOCK_UN, LOADING)
            lock(fcntl.LOCK_EX, DEVICE)
            if not is_loaded:
                held.write(b".")

        yield ready


@functools.cache
def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--program", required=True, choices=sorted(PROGRAMS), metavar="NAME", help=", ".join(sorted(PROGRAMS)))
    found.add_argument("--fixed", action="store_true", help="with the fix")
    found.add_argument("--seconds", type=float, default=1.5, help="length of the measured loop (default 1.5)")
    found.add_argument("--steps", type=int, help="run so many steps instead, and print what they computed")
    found.add_argument("--warm", type=float, default=WARM_SECONDS, metavar="SECONDS", help="start-up before the clock (default 0.2)")
    found.add_argument("--turn", metavar="FILE", help="run only while no other program with the same FILE loads or runs; for PyTorch")
    found.add_argument("--loaded", action="store_true", help="the process has loaded its libraries before")
    return found


def main() -> None:
    options = parser().parse_args()
    try:
        with turn(options.turn, options.loaded) as ready:
            build = getattr(importlib.import_module(PROGRAMS[options.program]), options.program)
            ready()
            measure(build(options.fixed), options.steps, options.seconds, options.warm)
    except ImportError as error:
        print(f"not installed: {error}", file=sys.stderr)
        sys.exit(NOT_INSTALLED)


if __name__ == "__main__":
    sys.modules["fixes"] = sys.modules["__main__"]
    main()
