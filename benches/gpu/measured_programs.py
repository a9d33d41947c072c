"""The programs whose cost is measured: `python3 measured_programs.py NAME...` prints their figures as JSON.

overhead.py imports this once, and runs each program in a fork, before which nothing calls CUDA. Alone it is for tools that
must start the process themselves. A figure is the time of a step or of a token, milliseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import pathlib
import random
import socket
import statistics
import sys
import time
from collections.abc import Callable

# The last one: to ask for a device must not call CUDA before a fork.
os.environ.update(
    HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TQDM_DISABLE="1", PYTORCH_NVML_BASED_CUDA_CHECK="1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "gpu" / "workloads"))

import torch  # noqa: E402
import train  # noqa: E402
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM  # noqa: E402

with contextlib.suppress(ImportError):
    import torchvision  # noqa: F401

# `cpu` is for a rehearsal with small loads, whose figures mean nothing.
DEVICE = os.environ.get("COST_DEVICE", "cuda")
SMALL = DEVICE == "cpu"
# Steps to warm up, and in each of three repetitions, whose median counts.
LOADS = {name: (1, 1) if SMALL else load for name, load in {"mlp": (10, 25), "gpt": (3, 6), "resnet": (4, 6)}.items()}
REPETITIONS = 3
VOCABULARY = 32000
# Requests at a time, and tokens of each.
CONCURRENCY = (1, 8, 64)
TOKENS = 8 if SMALL else 150
# Recording by nodes ends after ten seconds above its budget; longest wait for that, and for CUPTI to be off, seconds.
ENDS_WITHIN, SETTLES = 14.0, 0.5
WINDOW = 1.0


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


def training(model: str) -> dict[str, float]:
    warmup, steps = LOADS[model]
    load = argparse.Namespace(
        model=model, steps=steps, repetitions=REPETITIONS, warmup=warmup, batch=None, loader_ms=None)
    return {model: statistics.median(train.train(load))}


class Control:
    """The socket of libprof.so in this process (docs/guide/control.md); absent under other tools."""

    def __init__(self) -> None:
        self.path = pathlib.Path(os.environ.get("GPUWHY_CONTROL", "/nonexistent")) / f"{os.getpid()}.sock"

    def say(self, request: str) -> dict:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(str(self.path))
            connection.sendall(f"{request}\n".encode())
            return json.loads(connection.makefile().readline())


@torch.no_grad()
def decode() -> dict[str, float]:
    """A step that decodes one token of eight sequences, as one graph.

    Under gpuwhy's default also after recording has ended, and in a capture by command, between two steps of which nothing
    runs while recording is switched.
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
    host = torch.empty(8, dtype=token.dtype).pin_memory() if DEVICE == "cuda" else torch.empty(8, dtype=token.dtype)

    def window(seconds: float) -> float:
        times, until = [], time.perf_counter() + seconds
        while time.perf_counter() < until:
            begun = time.perf_counter()
            graph.replay()
            host.copy_(token, non_blocking=True)
            torch.cuda.current_stream().synchronize()
            times.append(time.perf_counter() - begun)
        return statistics.median(times) * 1e3

    window(0.2)
    figures = {"decode_start": window(WINDOW)}
    control = Control()
    if os.environ.get("COST_LONG") and control.path.exists():
        until = time.monotonic() + ENDS_WITHIN
        while control.say("status")["state"] == "capturing" and time.monotonic() < until:
            window(0.2)
        if control.say("status")["state"] == "waiting":
            window(SETTLES)
            figures["decode_later"] = window(WINDOW)
            if control.say("start").get("changed"):
                window(SETTLES)
                figures["decode_capture"] = window(WINDOW)
    return figures


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def serving(concurrency: tuple[int, ...] = CONCURRENCY) -> dict[str, float]:
    """Continuous batching of transformers, without CUDA graphs: time from one token of a request to its next."""
    model = model_of(8)
    model.set_attn_implementation("paged|sdpa")
    batching = ContinuousBatchingConfig(
        num_blocks=96, max_batch_tokens=2560, use_cuda_graph=False, use_async_batching=False, allow_block_sharing=False)
    choose = random.Random(1)

    def answer(requests: int, tokens: int) -> list[float]:
        generation = GenerationConfig(
            max_new_tokens=tokens, do_sample=False, eos_token_id=VOCABULARY + 1, pad_token_id=0)
        prompts = [[choose.randrange(5, VOCABULARY) for _ in range(32)] for _ in range(requests)]
        answers = model.generate_batch(
            inputs=prompts, generation_config=generation, continuous_batching_config=batching, record_timestamps=True)
        stamps = [answer.timestamps for answer in answers.values()]
        if len(stamps) != requests or any(len(times) != tokens for times in stamps):
            raise RuntimeError(f"{requests} requests got {[len(times) for times in stamps][:9]} of {tokens} tokens")
        return [(later - earlier) * 1e3 for times in stamps for earlier, later in zip(times, times[1:])]

    answer(8, 10)
    figures = {}
    for requests in concurrency:
        times = answer(requests, TOKENS)
        figures |= {f"serving_{requests}_p50": percentile(times, 0.5), f"serving_{requests}_p99": percentile(times, 0.99)}
    return figures


PROGRAMS: dict[str, Callable[[], dict[str, float]]] = {
    "mlp": lambda: training("mlp"), "gpt": lambda: training("gpt"), "resnet": lambda: training("resnet"),
    "decode": decode, "serving": serving, "serving_8": lambda: serving((8,))}


def measure(names: list[str], profiler: bool = False) -> dict[str, float]:
    """Figures of programs, one after the other in this process; with `profiler` each under a
    torch.profiler of its own, with its defaults."""
    figures = {}
    for name in names:
        with torch.profiler.profile() if profiler else contextlib.nullcontext():
            figures |= PROGRAMS[name]()
        # Memory of a program is released before the next one.
        gc.collect()
        torch.cuda.empty_cache()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=PROGRAMS, metavar="NAME", help=", ".join(PROGRAMS))
    print(json.dumps(measure(parser.parse_args().names)), flush=True)


if __name__ == "__main__":
    main()
