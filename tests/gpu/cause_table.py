"""The causes: programs as in intervention_table.py, each with what a good answer names: the line, or words of a person.

In the source of a program each line that makes it slow has a comment `# cause: NAME`. Half of the programs of each kind
are held out, marked before any of them had run on a GPU: the other half is for finding what the report lacks, this one
only for judging it. Words are those of a person who knows the cause. They must not follow the report's sentences.
"""

from __future__ import annotations

import re

from intervention_table import FIXES, Intervention

# Pairs of runs, and the length of one, seconds: most steps take 1 to 10 ms.
ROUNDS, SECONDS = 5, 0.3
MARK = re.compile(r"# cause: (.+)$")
HELD_OUT, TUNED = True, False
# A compiler is loaded before the program is ready.
COMPILER = "torch,torch._dynamo,torch._inductor.compile_fx"

# What is built while the program runs, and that it is, or why; not the advice to use torch.compile.
BUILT = r"^(?=.*(kernel|algorithm|code))(?=.*(shape|new (size|length|value)|build|built|(?<!torch\.)compil|benchmark|speciali))|recompil"
INTERPRETER = r"interpreter|\bGIL\b"
# Who hears that another process uses the GPU knows what to do.
OTHERS = r"(other|another|second|several) (process|program|job)|processes|\bshar(ed|es|ing)\b"
READS = r"\.item\(\)|\breads?\b|\breading\b"


def cause(
        name: str, kind: str, fix: str, bottlenecks: str, removes: str | None, held_out: bool, names: str = "",
        **more) -> Intervention:
    """One of workloads/interventions. `names`: see Intervention; without it only the marked line counts."""
    before = ("--program", name)
    return Intervention(
        fix, tuple(bottlenecks.split()), removes, held_out, before, (*before, "--fixed"), kind=kind, names=names,
        **{"rounds": ROUNDS, "seconds": SECONDS, **more})


CAUSES: dict[str, Intervention] = {
    # Kernels that are built while the program runs, and compiled training. They need long to be ready, so they start
    # together.
    "compile_shapes": cause(
        "compile_shapes", "builds", "dynamic=True", "kernel_build", "host work", HELD_OUT, BUILT, libraries=COMPILER, seconds=0.7,
        traced_seconds=2.0),
    "triton_constants": cause(
        "triton_constants", "builds", "an argument", "kernel_build", "host work", HELD_OUT, BUILT, libraries="torch,triton", seconds=0.5),
    "cudnn_shapes": cause("cudnn_shapes", "builds", "padded to one size", "kernel_build", None, TUNED, BUILT, seconds=0.5),
    "cupy_literals": cause("cupy_literals", "builds", "an argument", "kernel_build", "host work", TUNED, BUILT, libraries="cupy"),
    "compiled_records": cause(
        "compiled_records", "compiled training", "every hundredth step", "host_cpu", "host work", HELD_OUT, libraries=COMPILER),
    "compiled_poll": cause(
        "compiled_poll", "compiled training", "no wait", "host_cpu", "host work", TUNED, libraries=COMPILER),

    # Another process on the GPU.
    "shared_products": cause("shared_products", "shared GPU", "not shared", "gpu_compute cannot_tell", None, TUNED, OTHERS, traced_seconds=5.0),
    "shared_filter": cause("shared_filter", "shared GPU", "not shared", "gpu_compute cannot_tell", None, HELD_OUT, OTHERS, traced_seconds=5.0),

    # Work of the launching thread.
    "backoff": cause("backoff", "host", "no wait", "host_cpu", "host work", TUNED),
    "flushed_log": cause("flushed_log", "host", "every hundredth step", "host_cpu", "host work", HELD_OUT),
    "numpy_rows": cause("numpy_rows", "host", "all rows at once", "host_cpu", "host work", HELD_OUT),
    "shell_stats": cause("shell_stats", "host", "files instead of commands", "host_cpu", "host work", TUNED),

    # Copies.
    "clones": cause("clones", "copies", "no clones", "copy", "copies on the device", HELD_OUT, r"clone|copies within"),
    "sample_copies": cause(
        "sample_copies", "copies", "one copy", "copy launch sync", "many copies", TUNED,
        r"small copies|(join|stack|batch)\w*[^.\n]{0,40} cop(y|ies)"),
    "score_map": cause("score_map", "copies", "reduced on the device", "copy host_cpu", None, HELD_OUT),
    "checkpoint": cause(
        "checkpoint", "copies", "every four hundredth step", "copy host_cpu", None, TUNED, r"torch\.save|checkpoint|seriali",
        seconds=0.5),

    # Threads.
    "pool_launches": cause(
        "pool_launches", "threads", "one thread, CUDA graph", "launch host_cpu", "launches", HELD_OUT, rf"{INTERPRETER}|\bthreads\b"),
    "gil_thread": cause("gil_thread", "threads", "no thread", "host_cpu", "host work", TUNED, INTERPRETER),
    "queue_thread": cause(
        "queue_thread", "threads", "8 processes", "host_cpu data_loading", "host work", HELD_OUT, rf"{INTERPRETER}|\bqueue"),

    # Two phases, of which the longer one is mended. A run is one of each.
    "load_then_train": cause(
        "load_then_train", "phases", "pinned memory, own stream", "copy", "exposed copies", TUNED, r"\bpinned\b|\bpageable\b",
        traced_seconds=0.5),
    "train_then_export": cause(
        "train_then_export", "phases", "CUDA graph", "launch", "launches", HELD_OUT, r"CUDA graph", traced_seconds=0.5),

    # Graphs.
    "replay_gap": cause("replay_gap", "graphs", "one factor", "host_cpu", "host work", TUNED),
    "replay_readback": cause("replay_readback", "graphs", "16 tokens at once", "sync", "readbacks", HELD_OUT, READS),
    "layer_graphs": cause(
        "layer_graphs", "graphs", "one graph", "launch", "launches", TUNED,
        r"(fewer|larger|bigger|one|single|join\w*|merge\w*)[^.\n]{0,40} graphs?\b|graphs?[^.\n]{0,40}(larger|fewer|small|join)"),

    # Loaders.
    "decode_inline": cause("decode_inline", "loaders", "8 workers", "data_loading", "waits for data", TUNED, r"\bworkers?\b|num_workers"),
    "ragged_collate": cause("ragged_collate", "loaders", "one comparison", "data_loading", "waits for data", HELD_OUT, r"collat"),
    "short_prefetch": cause("short_prefetch", "loaders", "prefetch ten", "data_loading", "waits for data", TUNED, r"prefetch"),
    "short_epochs": cause(
        "short_epochs", "loaders", "persistent workers", "data_loading", "waits for data", HELD_OUT,
        r"persistent|(start|creat|fork)\w*[^.\n]{0,30} workers?|workers?[^.\n]{0,30}(start|creat|fork)", seconds=0.5),

    # Reads.
    "kept_tokens": cause("kept_tokens", "reads", "all tokens", "sync", "readbacks", TUNED, r"\bindex|nonzero|\bmask|\bsizes?\b"),
    "found_boxes": cause("found_boxes", "reads", "nonzero_static", "sync", "readbacks", HELD_OUT, r"\bindex|nonzero|\bsizes?\b"),
    "early_exit": cause("early_exit", "reads", "torch.where", "sync", "readbacks", HELD_OUT, READS),
    "finite_gradients": cause(
        "finite_gradients", "reads", "one norm, read every 50 steps", "sync launch", "readbacks", TUNED, READS),
}


def marked_lines() -> dict[str, list[str]]:
    """The lines that make programs slow, as `module.py:LINE`, by program."""
    found: dict[str, list[str]] = {}
    for path in sorted(FIXES.parent.glob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            mark = MARK.search(line)
            if mark and path != FIXES:
                found.setdefault(mark[1], []).append(f"{path.name}:{number}")
    return found


def names_line(answer: str, lines: list[str]) -> bool:
    """True if the answer contains one of the lines: `train.py:4` is neither in `train.py:42` nor in `my_train.py:4`."""
    return any(re.search(rf"(?<![\w-]){re.escape(line)}(?!\d)", answer) for line in lines)


PLACE = re.compile(r"[\w./~-]+\.(?:py|so)\b[\w.+]*(?::\d+(?:-\d+)?)?(?: \([^)]*\))?")


def names_words(answer: str, names: str) -> bool:
    """True if the answer has the words of a good one. Names of files and functions are no words: they may contain them."""
    return bool(names) and re.search(names, PLACE.sub("", answer), re.IGNORECASE) is not None
