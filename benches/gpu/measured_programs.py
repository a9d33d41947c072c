"""The programs whose cost is measured. Each is set up once, and then runs for a short turn whenever it is asked to.

    python3 measured_programs.py REQUESTS ANSWERS NAME...

overhead.py imports this once, and runs it in forks, before which nothing calls CUDA. The command is for a tool that must
start its process itself: it takes requests from one fifo and answers on the other.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import json
import os
import pathlib
import random
import socket
import statistics
import sys
import time
from collections.abc import Callable
from typing import TextIO

# The last one: to ask for a device must not call CUDA before a fork.
os.environ.update(
    HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TQDM_DISABLE="1", PYTORCH_NVML_BASED_CUDA_CHECK="1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "gpu" / "workloads"))

import torch  # noqa: E402
import train  # noqa: E402
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM  # noqa: E402

with contextlib.suppress(ImportError):
    torchvision = importlib.import_module("torchvision")

# `cpu` is for a rehearsal with small loads, whose figures mean nothing.
DEVICE = os.environ.get("COST_DEVICE", "cuda")
SMALL = DEVICE == "cpu"
# Steps of a turn, which takes some 0.1 s on an H200; those before, since a process that waited is slow at first, have no figure.
STEPS = {"mlp": 10, "gpt": 3, "resnet": 4}
LAUNCHES, REPLAYS = 10_000, 50
VOCABULARY = 32000
# Requests at a time, and tokens of each.
CONCURRENCY = (1, 8, 64)
TOKENS = 6 if SMALL else 15
# Recording by nodes ends after ten seconds above its budget: time until it surely has, and for a capture to begin, seconds.
ENDS_AFTER, SETTLES = (1.0, 0.1) if SMALL else (14.0, 0.5)

# What a turn measured: time of a step, or of each token, milliseconds; of empty kernels nanoseconds.
Figures = dict[str, float | list[float]]
Turn = Callable[[], Figures]


def model_of(layers: int) -> torch.nn.Module:
    """A Llama with random weights."""
    # It plans anew for each number of tokens.
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.manual_seed(0)
    config = LlamaConfig(
        num_hidden_layers=layers, hidden_size=1024, intermediate_size=2816, num_attention_heads=16, num_key_value_heads=4,
        vocab_size=VOCABULARY)
    with torch.device(DEVICE):
        return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def training(name: str) -> Turn:
    torch.manual_seed(0)
    module, batch = train.build(argparse.Namespace(model=name, batch=1 if SMALL else None))
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)

    def steps(count: int) -> float:
        begun = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            module(batch).float().pow(2).mean().backward()
            optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / count * 1e3

    count = 1 if SMALL else STEPS[name]
    steps(count)

    def turn() -> Figures:
        steps(1)
        return {name: steps(count)}

    return turn


def launch() -> Turn:
    """Empty kernels, one after another."""
    if SMALL:
        return lambda: {"launch": 1000.0}
    library = ctypes.CDLL(os.environ["COST_EMPTY_KERNELS"])
    library.time_of_launch.restype, library.time_of_launch.argtypes = ctypes.c_double, [ctypes.c_long]

    def turn() -> Figures:
        if library.time_of_launch(LAUNCHES // 10) < 0:
            raise RuntimeError("a launch failed")
        return {"launch": library.time_of_launch(LAUNCHES)}

    turn()
    return turn


def start_capture() -> None:
    """Starts a capture in this process by the socket of libprof.so (docs/guide/control.md)."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(str(pathlib.Path(os.environ["GPUWHY_CONTROL"]) / f"{os.getpid()}.sock"))
        connection.sendall(b"start\n")
        if not json.loads(connection.makefile().readline()).get("changed"):
            raise RuntimeError("no capture begins")


@torch.no_grad()
def decode() -> Turn:
    """A step that decodes one token of eight sequences, as one graph.

    With COST_DECODE=later it runs until gpuwhy has ended recording before its first turn, and with `capture` a capture is
    started by command, while no graph runs.
    """
    model = model_of(16)
    ids = torch.randint(5, VOCABULARY, (8, 1), device=DEVICE)
    positions = torch.full((8, 1), 7, device=DEVICE)

    def forward() -> torch.Tensor:
        return model(ids, position_ids=positions, use_cache=False).logits[:, -1].argmax(-1)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            forward()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token = forward()
    host = torch.empty(8, dtype=token.dtype)
    host = host if SMALL else host.pin_memory()

    def steps(count: int = REPLAYS) -> float:
        times = []
        for _ in range(count):
            begun = time.perf_counter()
            graph.replay()
            host.copy_(token, non_blocking=True)
            torch.cuda.current_stream().synchronize()
            times.append(time.perf_counter() - begun)
        return statistics.median(times) * 1e3

    def run_for(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            steps(10)

    which = os.environ.get("COST_DECODE")
    if which == "capture":
        start_capture()
    run_for(ENDS_AFTER if which == "later" else SETTLES)

    def turn(_inputs: object = (model, ids, positions)) -> Figures:
        # The graph reads its inputs and the model where they were: they are kept for it.
        steps(REPLAYS // 10)
        return {"decode": steps()}

    return turn


def serving() -> Turn:
    """Continuous batching of transformers, without CUDA graphs: times from one token of a request to its next."""
    model = model_of(4)
    model.set_attn_implementation("paged|sdpa")
    batching = ContinuousBatchingConfig(
        num_blocks=96, max_batch_tokens=2560, use_cuda_graph=False, use_async_batching=False, allow_block_sharing=False)
    generation = GenerationConfig(
        max_new_tokens=TOKENS, do_sample=False, eos_token_id=VOCABULARY + 1, pad_token_id=0)
    manager = model.init_continuous_batching(generation_config=generation, continuous_batching_config=batching)
    manager.start()
    choose = random.Random(1)

    def answer(requests: int) -> list[float]:
        manager.add_requests(
            [[choose.randrange(5, VOCABULARY) for _ in range(32)] for _ in range(requests)], record_timestamps=True)
        finished, until = [], time.monotonic() + 30
        while len(finished) < requests:
            result = manager.get_result(timeout=1)
            if result is not None and result.is_finished():
                finished.append(result)
            elif time.monotonic() > until or not manager.is_running():
                raise RuntimeError(f"{len(finished)} of {requests} answers")
        # All requests get their tokens in the same iterations, so that one of them has the time of all.
        times = finished[-1].timestamps
        if len(times) != TOKENS:
            raise RuntimeError(f"{len(times)} of {TOKENS} tokens")
        return [(later - earlier) * 1e3 for earlier, later in zip(times, times[1:])]

    for requests in CONCURRENCY:
        answer(requests)

    def turn() -> Figures:
        return {f"serving_{requests}": answer(requests)[1:] for requests in CONCURRENCY}

    return turn


PROGRAMS: dict[str, Callable[[], Turn]] = {
    "mlp": lambda: training("mlp"), "gpt": lambda: training("gpt"), "resnet": lambda: training("resnet"), "launch": launch,
    "decode": decode, "serving": serving}


def take_turns(names: list[str], requests: TextIO, answers: TextIO, library: str | None = None, profiler: bool = False) -> None:
    """Sets the programs up, says so, and runs the one that each line of `requests` names, until there are no more.

    With `profiler` each turn is recorded by torch.profiler with its defaults. Answers are lines of JSON; a program that
    fails has an `error`, as all have if `library` is not loaded.
    """

    def say(answer: dict) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    turns, errors = {}, {}
    for name in names:
        try:
            turns[name] = PROGRAMS[name]()
        except Exception as error:  # noqa: BLE001
            errors[name] = f"{type(error).__name__}: {error}"[:300]
    if library and library not in pathlib.Path("/proc/self/maps").read_text():
        turns, errors = {}, {name: f"{library} was not loaded" for name in names}
    say({"ready": list(turns), "errors": errors})
    for line in requests:
        try:
            with torch.profiler.profile() if profiler else contextlib.nullcontext():
                figures = turns[line.strip()]()
            say(figures)
        except Exception as error:  # noqa: BLE001
            say({"error": f"{type(error).__name__}: {error}"[:300]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requests", type=pathlib.Path)
    parser.add_argument("answers", type=pathlib.Path)
    parser.add_argument("names", nargs="+", choices=PROGRAMS, metavar="NAME", help=", ".join(PROGRAMS))
    options = parser.parse_args()
    with open(options.requests) as requests, open(options.answers, "w") as answers:
        take_turns(options.names, requests, answers)
    # A server's thread would go on.
    os._exit(0)


if __name__ == "__main__":
    main()
