"""The remedies: programs with one fix each, and the entry of the report's catalogue that says just this fix.

The programs of the last part are held out. They were marked before any of them had run on a GPU: entries, their
conditions and gains may be changed because of the others, these only judge them. A held-out program that has been seen
while an entry was changed judges nothing any more: those of the first parts have been judged once, half of them as held
out, and are all for calibration since then. A new program is marked before its first run.

Programs without a fix must get no remedy for what they do not lack.
"""

from __future__ import annotations

import dataclasses

from cause_table import COMPILER
from intervention_table import Intervention

# Pairs of runs, and their length in seconds; that of the traced run.
ROUNDS, SECONDS, TRACED_SECONDS = 5, 0.2, 1.0
HELD_OUT, TUNED = True, False
# Remedies that are looked at: a reader does not try more.
SHOWN = 3

# Remedies that change what the GPU computes: nonsense where it has nothing to do, or does it as well as it can.
GPU_ENTRIES = frozenset(
    "tf32 bf16 cast_weights mixed_operands fp64 unaligned conv_cuda_cores thin_gemm wave_tail channels_last "
    "sdpa sdpa_fp32 mask_built kv_cat fuse gelu_parts rmsnorm_parts rope_parts strided relayout "
    "cat vocab_loss scatter index_grad sort_topk rnn_cells dequantize small_grid "
    "occupancy spills bank_conflicts uncoalesced hot_atomics foreach_fused cupy_fuse".split())
# The same for what the host does for launches and reads: nonsense where the GPU always has work.
HOST_ENTRIES = frozenset(
    "graph compile python_overhead batch_grids fused_optimizer read_value check_each mask_index unknown_size scalar_tensor "
    "timer_sync clip_norm anomaly workers more_workers pinned prefetch gc gil empty_cache".split())
PRECISION = frozenset("tf32 bf16 fp8 channels_last".split())
# Entries that say nearly the same: who is wrong with one is wrong with the other.
VARIANTS = {"tf32": "tf32_matmul", "bf16": "fp16", "compile": "compile_elementwise", "graph": "graph_whole"}
OTHER_LIBRARIES = frozenset("jax_no_jit jax_flags cupy_fuse numba_copies".split())


@dataclasses.dataclass(frozen=True)
class Remedy(Intervention):
    """A program before and after a fix.

    `right` are the ids that say this fix; the gain is compared with that of the first of them that the report has.
    `wrong` are ids that are nonsense for the program. `outside` is the id under which `gpuwhy try` makes the same
    change, None if it cannot. Without a fix `right` is empty.
    """

    right: tuple[str, ...] = ()
    wrong: frozenset[str] = frozenset()
    outside: str | None = None

    @property
    def is_control(self) -> bool:
        return not self.right


def remedy(
        name: str, kind: str, fix: str, right: str, held_out: bool, wrong: frozenset[str] = frozenset(), outside: str | None = None,
        **more) -> Remedy:
    before = ("--program", name)
    # Words of another library are nonsense for PyTorch.
    wrong |= OTHER_LIBRARIES if "libraries" not in more or "torch" in more["libraries"] else {"compile"}
    wrong |= {variant for one, variant in VARIANTS.items() if one in wrong}
    return Remedy(
        fix, (), None, held_out, before, (*before, "--fixed"), kind=kind, right=tuple(right.split()), wrong=wrong, outside=outside,
        **{"rounds": ROUNDS, "seconds": SECONDS, "traced_seconds": TRACED_SECONDS, **more})


def control(name: str, wrong: frozenset[str], held_out: bool) -> Remedy:
    return remedy(name, "control", "none", "", held_out, wrong)


REMEDIES: dict[str, Remedy] = {
    # Precision and shapes of matrix products.
    "tf32_training": remedy("tf32_training", "precision", "TF32", "tf32_matmul tf32", TUNED, HOST_ENTRIES, "tf32_matmul"),
    "autocast_convolutions": remedy(
        "autocast_convolutions", "precision", "autocast to bf16", "bf16", TUNED, HOST_ENTRIES, "bf16"),
    "odd_vocabulary": remedy(
        "odd_vocabulary", "precision", "50,304 words", "unaligned", TUNED, HOST_ENTRIES | {"tf32", "bf16"}, least_gain=None),
    "autocast_casts": remedy(
        "autocast_casts", "precision", "weights in bf16", "cast_weights", TUNED, frozenset({"bf16", "channels_last"})),
    "double_chain": remedy(
        "double_chain", "precision", "single precision", "fp64", TUNED, HOST_ENTRIES - {"compile"} | {"tf32", "bf16"}),
    "mixed_buffers": remedy(
        "mixed_buffers", "precision", "buffers in bf16", "mixed_operands", TUNED, HOST_ENTRIES - {"compile"} | {"tf32"}, least_gain=None),

    # Layouts of images.
    "layout_resnet": remedy(
        "layout_resnet", "layout", "channels last", "channels_last", TUNED, frozenset({"tf32", "gc"}), "channels_last"),
    "kept_layout": remedy("kept_layout", "layout", "one layout", "relayout", TUNED, HOST_ENTRIES - {"compile"} | PRECISION),

    # Attention.
    "masked_attention": remedy(
        "masked_attention", "attention", "fused attention", "sdpa", TUNED, HOST_ENTRIES - {"compile"} | {"tf32"}),
    "built_masks": remedy("built_masks", "attention", "is_causal=True", "mask_built", TUNED, frozenset({"tf32", "bf16", "sdpa"})),
    "single_attention": remedy(
        "single_attention", "attention", "bf16", "sdpa_fp32 bf16", TUNED, frozenset({"sdpa", "graph", "compile"})),
    "grown_cache": remedy(
        "grown_cache", "attention", "room for all tokens", "kv_cat cat", TUNED, frozenset({"bf16", "tf32"}), seconds=0.25),

    "generated_text": remedy(
        "generated_text", "attention", "a static cache", "kv_cat cat", TUNED, frozenset({"tf32", "fp64"}), "kv_cat",
        libraries="torch,transformers", seconds=0.4),

    # Many elementwise kernels that could be one. One of them starts a compiler.
    "gelu_by_hand": remedy(
        "gelu_by_hand", "elementwise", "F.gelu", "gelu_parts fuse", TUNED, frozenset({"tf32", "bf16", "sdpa"})),
    "rmsnorm_by_hand": remedy(
        "rmsnorm_by_hand", "elementwise", "F.rms_norm", "rmsnorm_parts fuse", TUNED, frozenset({"tf32", "bf16", "sdpa"})),
    "color_chain": remedy(
        "color_chain", "elementwise", "torch.compile", "fuse compile_elementwise compile", TUNED, PRECISION, "compile",
        libraries=COMPILER),
    "cupy_chain": remedy("cupy_chain", "elementwise", "cupy.fuse", "cupy_fuse fuse", TUNED, PRECISION, libraries="cupy"),

    # Rows that are chosen or sorted.
    "sorted_scores": remedy("sorted_scores", "rows", "topk", "sort_topk", TUNED, frozenset({"index_grad", "gc", "sdpa"})),
    "index_gradient": remedy("index_gradient", "rows", "F.embedding", "index_grad", TUNED, PRECISION | {"read_value"}),

    # Launches.
    "foreach_adam": remedy(
        "foreach_adam", "launches", "fused Adam", "foreach_fused fused_optimizer", TUNED, PRECISION, "fused_optimizer"),
    "loop_adamw": remedy(
        "loop_adamw", "launches", "fused AdamW", "fused_optimizer foreach_fused", TUNED, PRECISION, "fused_optimizer"),
    "separate_experts": remedy("separate_experts", "launches", "bmm", "batch_grids", TUNED, PRECISION),
    "single_samples": remedy(
        "single_samples", "launches", "one call", "batch_grids", TUNED, frozenset({"tf32", "bf16", "gc"})),
    "lstm_cells": remedy("lstm_cells", "launches", "nn.LSTM", "rnn_cells", TUNED, frozenset({"batch_grids"})),

    "adamax_loop": remedy(
        "adamax_loop", "launches", "foreach Adamax", "fused_optimizer foreach_fused compile compile_elementwise", TUNED, PRECISION,
        "foreach_optimizer"),
    "small_layers": remedy(
        "small_layers", "launches", "CUDA graphs by torch.compile", "graph compile graph_whole", TUNED, frozenset({"fp64", "gc"}),
        "compile_graphs", libraries=COMPILER),
    "trained_layers": remedy(
        "trained_layers", "launches", "the module as a graph", "graph compile backward graph_whole", TUNED, frozenset({"fp64", "gc"}),
        "graphed_module"),
    "scored_batches": remedy(
        "scored_batches", "launches", "inference mode", "no_grad graph compile", TUNED, frozenset({"fp64", "gc"}), "no_grad"),
    "stream_chains": remedy("stream_chains", "launches", "32 queues", "connections", TUNED, PRECISION, "connections"),

    # Waiting for the GPU.
    "unsized_repeat": remedy("unsized_repeat", "waiting", "output_size", "unknown_size", TUNED, PRECISION),
    "new_scalars": remedy("new_scalars", "waiting", "made once", "scalar_tensor", TUNED, PRECISION),
    "timed_phases": remedy("timed_phases", "waiting", "no waits", "timer_sync", TUNED, PRECISION | {"read_value"}, "timer_sync"),
    "anomaly_mode": remedy("anomaly_mode", "waiting", "no checks", "anomaly", TUNED, PRECISION, "anomaly"),
    "asserted_layers": remedy("asserted_layers", "waiting", "one check", "check_each read_value", TUNED, PRECISION),

    "filled_memory": remedy(
        "filled_memory", "elementwise", "no filling", "deterministic", TUNED, PRECISION | {"sdpa"}, "deterministic"),

    # Copies of the host's arrays.
    "pageable_training": remedy("pageable_training", "copies", "pinned memory", "pinned", TUNED, PRECISION),
    "pinned_waits": remedy(
        "pinned_waits", "copies", "no waits", "overlap_copies pinned join_copies", TUNED, PRECISION, "non_blocking"),
    "numba_arrays": remedy(
        "numba_arrays", "copies", "stays on the device", "numba_copies", TUNED, PRECISION, libraries="numba.cuda"),

    # What is around the steps.
    "parsed_records": remedy(
        "parsed_records", "host", "8 workers", "workers", TUNED, GPU_ENTRIES, "workers", seconds=0.4, traced_seconds=2.0),
    "rows_one_by_one": remedy(
        "rows_one_by_one", "host", "a batch by one index", "whole_batches collate workers", TUNED, GPU_ENTRIES, "tensor_batches",
        seconds=0.4, traced_seconds=2.0),
    "fresh_buffers": remedy(
        "fresh_buffers", "host", "memory is kept", "page_faults move_work", TUNED, GPU_ENTRIES, "page_faults"),
    "frozen_heap": remedy("frozen_heap", "host", "gc.freeze", "gc", TUNED, GPU_ENTRIES, "gc", seconds=0.4, traced_seconds=2.5),
    "saved_steps": remedy("saved_steps", "host", "every fiftieth step", "save_less", TUNED, GPU_ENTRIES),
    "request_cache": remedy("request_cache", "host", "no empty_cache()", "empty_cache", TUNED, PRECISION, "empty_cache"),

    # Nothing to fix. What an entry says about them would be wrong, however well its patterns match.
    "tf32_small": control("tf32_small", PRECISION, TUNED),
    "one_convolution": control("one_convolution", frozenset({"channels_last", "tf32"}), TUNED),
    "dependent_layers": control("dependent_layers", frozenset({"batch_grids"}) | PRECISION, TUNED),
    "roof_products": control("roof_products", GPU_ENTRIES | HOST_ENTRIES, TUNED),
    "quiet_clip": control(
        "quiet_clip", frozenset({"clip_norm", "read_value", "check_each", "timer_sync", "tf32", "channels_last"}), TUNED),
    "rate_limited": control("rate_limited", GPU_ENTRIES | HOST_ENTRIES, TUNED),

    # The judging part. Its author had seen what --explain prints about 26 entries and the table of the first parts, but not
    # the source of entries; graph_messages was chosen because `scatter` is about it. Precision and layouts.
    "volume_segmenter": remedy(
        "volume_segmenter", "precision", "TF32", "tf32 bf16 fp16", HELD_OUT,
        HOST_ENTRIES | {"tf32_matmul", "sdpa", "unaligned", "fp64"}, "tf32"),
    "speech_encoder": remedy(
        "speech_encoder", "precision", "autocast to bf16", "bf16 fp16 tf32_matmul tf32", HELD_OUT, HOST_ENTRIES | {"sdpa", "fp64"}, "bf16"),
    "unet_server": remedy(
        "unet_server", "layout", "channels last", "channels_last", HELD_OUT, HOST_ENTRIES | {"tf32", "bf16", "sdpa", "fp64"},
        "channels_last"),
    "point_layers": remedy(
        "point_layers", "layout", "points as rows", "relayout strided", HELD_OUT, HOST_ENTRIES - {"compile"} | PRECISION | {"sdpa"}),

    # Attention and losses.
    "long_documents": remedy(
        "long_documents", "attention", "SDPA", "sdpa", HELD_OUT, HOST_ENTRIES - {"compile"} | {"tf32", "bf16", "channels_last"}, "sdpa",
        libraries="torch,transformers"),
    "decoder_attention": remedy(
        "decoder_attention", "attention", "fused attention", "sdpa", HELD_OUT,
        HOST_ENTRIES - {"compile"} | {"tf32", "bf16", "channels_last"}),
    "smoothed_loss": remedy(
        "smoothed_loss", "elementwise", "F.cross_entropy", "vocab_loss fuse compile_elementwise compile", HELD_OUT,
        HOST_ENTRIES - {"compile"} | {"tf32", "bf16", "sdpa", "channels_last"}),

    # Rows and nodes.
    "dropout_samples": remedy(
        "dropout_samples", "elementwise", "torch.compile", "fuse compile_elementwise compile", HELD_OUT,
        HOST_ENTRIES - {"compile"} | PRECISION - {"bf16"} | {"sdpa"}, "compile", libraries=COMPILER),
    "graph_messages": remedy(
        "graph_messages", "rows", "sparse product", "scatter", HELD_OUT,
        HOST_ENTRIES - {"compile"} | {"sdpa", "channels_last", "unaligned"}),

    # Launches.
    "nesterov_loop": remedy(
        "nesterov_loop", "launches", "fused SGD", "fused_optimizer foreach_fused", HELD_OUT, PRECISION, "fused_optimizer"),
    "policy_steps": remedy(
        "policy_steps", "launches", "CUDA graph", "graph graph_whole compile compile_elementwise", HELD_OUT,
        PRECISION | {"read_value", "timer_sync", "gc"}),
    "jax_regression": remedy(
        "jax_regression", "launches", "jax.jit", "jax_no_jit", HELD_OUT, PRECISION | {"cupy_fuse"}, libraries="jax"),

    # Waiting for the GPU.
    "checked_gan": remedy("checked_gan", "waiting", "no checks", "anomaly", HELD_OUT, PRECISION, "anomaly"),
    "clipped_by_hand": remedy(
        "clipped_by_hand", "waiting", "clip_grad_norm_", "clip_norm read_value check_each wait_less", HELD_OUT, PRECISION),
    "pooled_sentences": remedy("pooled_sentences", "waiting", "masked sums", "mask_index", HELD_OUT, PRECISION),

    # Copies.
    "categorical_copies": remedy("categorical_copies", "copies", "one copy", "join_copies", HELD_OUT, PRECISION),
    "class_maps": remedy(
        "class_maps", "copies", "argmax on the device", "reduce_first copy_less", HELD_OUT, GPU_ENTRIES | {"graph", "compile"}),

    # What is around the steps.
    "decoded_images": remedy(
        "decoded_images", "host", "8 workers", "workers", HELD_OUT, GPU_ENTRIES, "workers", seconds=0.4, traced_seconds=2.0),
    "recorded_lengths": remedy(
        "recorded_lengths", "host", "no search", "cudnn_no_search new_shapes", HELD_OUT, GPU_ENTRIES | {"graph"}, "cudnn_no_search",
        seconds=0.4),
    "micro_batches": remedy("micro_batches", "host", "no empty_cache()", "empty_cache", HELD_OUT, PRECISION, "empty_cache"),

    # Nothing to fix.
    "tuned_decoder": control(
        "tuned_decoder",
        HOST_ENTRIES - {"compile"} | set(
            "tf32 bf16 channels_last sdpa sdpa_fp32 mask_built cast_weights unaligned foreach_fused".split()),
        HELD_OUT),
    "rare_reads": control("rare_reads", HOST_ENTRIES | {"tf32", "bf16", "channels_last", "sdpa", "foreach_fused"}, HELD_OUT),
    "summed_fields": control("summed_fields", GPU_ENTRIES - {"bf16"} | HOST_ENTRIES, HELD_OUT),
    # That batches come late is true, though no worker brings them sooner.
    "arriving_requests": control(
        "arriving_requests", GPU_ENTRIES | HOST_ENTRIES - {"workers", "more_workers", "prefetch"}, HELD_OUT),
}

# Changes that no entry advises under their own name: only tried.
UNADVISED = {
    "kept_gradients": remedy("kept_gradients", "elementwise", "freed gradients", "", TUNED, outside="zero_grad"),
    "four_lengths": remedy("four_lengths", "builds", "dynamic=True", "", TUNED, outside="compile_dynamic", libraries=COMPILER),
}
# Programs whose fix `gpuwhy try` makes, too.
OUTSIDE = {**{name: case for name, case in REMEDIES.items() if case.outside}, **UNADVISED}
TRIED = list(OUTSIDE)
