"""Programs with tokens that are servers, and some that only look like it: `python programs.py NAME [--seconds S]`.

Weights are random. The last line printed is JSON with the truth: `server`, whether the program has iterations as a
server has; of transformers its `iterations` by kind, and the sums of their tokens; of a loop its `steps`. Exit status
77: a library that the program needs is not installed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn

os.environ["HF_HUB_OFFLINE"] = "1"
NOT_INSTALLED = 77
VOCABULARY, LENGTH = 8000, 64

DEVICE, SECONDS, WIDTH = "cuda", 4.0, 512


def steps() -> Iterator[int]:
    """Numbers of the steps of a loop, until the time is over."""
    end, step = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        yield step
        step += 1


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=8, num_attention_heads=WIDTH // 64,
        num_key_value_heads=WIDTH // 64, pad_token_id=0, eos_token_id=None)
    return LlamaForCausalLM(config).to(DEVICE, torch.bfloat16).eval()


def batching(**options: bool) -> Callable[[], dict]:
    """Continuous batching of transformers. Its scheduler says what is in each iteration."""

    def program() -> dict:
        from transformers import ContinuousBatchingConfig, GenerationConfig
        from transformers.generation.continuous_batching import scheduler

        seen, sums = collections.Counter(), collections.defaultdict(collections.Counter)
        for kind in (scheduler.FIFOScheduler, scheduler.PrefillFirstScheduler):
            def schedule_batch(self, *arguments, original=kind.schedule_batch):
                result = original(self, *arguments)
                if lengths := [request.query_length for request in result[0] or []]:
                    name = "decode" if max(lengths) == 1 else "mixed" if min(lengths) == 1 else "prefill"
                    seen[name] += 1
                    sums[name].update(sequences=len(lengths), tokens=sum(lengths))
                return result
            kind.schedule_batch = schedule_batch
        model = llama()
        model.set_attn_implementation("paged|sdpa")
        choose = random.Random(1)
        prompts = [[choose.randrange(5, VOCABULARY) for _ in range(choose.randrange(16, 256))] for _ in range(int(16 * SECONDS))]
        results = model.generate_batch(
            inputs=prompts, generation_config=GenerationConfig(max_new_tokens=64, do_sample=False, eos_token_id=VOCABULARY + 1, pad_token_id=0),
            continuous_batching_config=ContinuousBatchingConfig(num_blocks=256, max_batch_tokens=512, **options))
        generated = sum(len(result.generated_tokens) for result in results.values())
        return {"server": True, "iterations": seen, "sums": sums, "generated": generated}

    return program


def generate(sequences: int, **options: object) -> Callable[[], dict]:
    """Tokens one by one, for all sequences of a batch together. Beams are sequences that are chosen anew each time."""

    def program() -> dict:
        model, prompt = llama(), torch.randint(1, VOCABULARY, (sequences, 32), device=DEVICE)
        for step in steps():
            model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=64, do_sample=False, **options)
        calls = step + 1
        return {
            "server": "num_beams" not in options, "iterations": {"prefill": calls, "decode": 63 * calls},
            "sums": {"prefill": {"tokens": 32 * sequences * calls}, "decode": {"tokens": 63 * sequences * calls}}}

    return program


class Encoder(nn.Module):
    """A vector for each text."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, WIDTH // 64, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.words, self.layers = nn.Embedding(VOCABULARY, WIDTH), nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, outputs)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        padding = mask == 0 if mask is not None else None
        return self.head(self.layers(self.words(ids), src_key_padding_mask=padding).mean(1))


def texts(sequences: int) -> list[torch.Tensor]:
    """Ids and mask, of one size."""
    ids, mask = torch.randint(VOCABULARY, (sequences, LENGTH)), torch.ones(sequences, LENGTH, dtype=torch.int64)
    return [part.to(DEVICE) for part in (ids, mask)]


def training_reads() -> dict:
    """Training that sends one word and its label of each sequence, and reads the predictions of each step."""
    model, loss, right = Encoder(10).to(DEVICE), nn.CrossEntropyLoss(), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in steps():
        words, labels = torch.randint(VOCABULARY, (64,)), torch.randint(10, (64,))
        there = words.to(DEVICE), labels.to(DEVICE)
        scores = model(there[0][:, None])
        optimizer.zero_grad()
        loss(scores, there[1]).backward()
        optimizer.step()
        right += (scores.argmax(-1).cpu() == labels).sum().item()
    return {"server": False, "steps": step + 1}


@torch.inference_mode()
def evaluation() -> dict:
    """Reads the predictions of each batch; the last one of each pass is smaller."""
    model, right = Encoder(10).to(DEVICE).eval(), 0
    for step in steps():
        words, labels = torch.randint(VOCABULARY, (64 if step % 10 else 40, LENGTH)), torch.randint(10, (64 if step % 10 else 40,))
        right += (model(words.to(DEVICE)).argmax(-1).cpu() == labels).sum().item()
    return {"server": False, "steps": step + 1}


@torch.inference_mode()
def classification() -> dict:
    model = Encoder(10).to(DEVICE).eval()
    for step in steps():
        model(*texts(random.Random(step).randrange(8, 64))).argmax(-1).tolist()
    return {"server": False, "steps": step + 1}


@torch.inference_mode()
def embeddings() -> dict:
    model = Encoder(256).to(DEVICE).eval()
    for step in steps():
        model(*texts(random.Random(step).randrange(8, 64))).cpu()
    return {"server": False, "steps": step + 1}


@torch.inference_mode()
def scores() -> dict:
    """Recommendations: two ids of each candidate, and one score of each back."""
    model = Encoder(1).to(DEVICE).eval()
    for step in steps():
        users, items = (torch.randint(VOCABULARY, (48,), dtype=torch.int32).to(DEVICE) for _ in range(2))
        model(torch.stack([users, items], 1)).flatten().tolist()
    return {"server": False, "steps": step + 1}


def item(kind: torch.dtype) -> Callable[[], dict]:
    """Reads one number of each step."""

    @torch.inference_mode()
    def program() -> dict:
        model, ids, total = Encoder(10).to(DEVICE).eval(), torch.randint(VOCABULARY, (32, LENGTH), device=DEVICE), 0.0
        for step in steps():
            total += model(ids).abs().sum().to(kind).item()
        return {"server": False, "steps": step + 1}

    return program


def rollouts() -> dict:
    """Reinforcement learning: tokens one by one, which are read back, then a step of the optimizer."""
    model, tokens = Encoder(VOCABULARY).to(DEVICE), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in steps():
        ids = torch.ones(16, LENGTH, dtype=torch.int64, device=DEVICE)
        with torch.no_grad():
            for position in range(1, LENGTH // 2):
                ids[:, position] = model(ids).argmax(-1)
                tokens += len(ids[:, position].tolist())
        optimizer.zero_grad()
        model(ids).square().mean().backward()
        optimizer.step()
    return {"server": False, "steps": step + 1, "tokens": tokens}


PROGRAMS: dict[str, Callable[[], dict]] = {
    "batching": batching(use_cuda_graph=False), "batching_graphs": batching(use_cuda_graph=True),
    "batching_async": batching(use_cuda_graph=True, use_async_batching=True), "generate_1": generate(1), "generate_8": generate(8),
    "training_reads": training_reads, "evaluation": evaluation, "classification": classification, "embeddings": embeddings,
    "scores": scores, "item_4": item(torch.float32), "item_8": item(torch.int64), "beam_search": generate(2, num_beams=4),
    "rollouts": rollouts}


def main() -> None:
    global DEVICE, SECONDS, WIDTH
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--device", default=DEVICE, help="cpu: to try a program without a GPU")
    options = parser.parse_args()
    DEVICE, SECONDS, WIDTH = options.device, options.seconds, options.width
    torch.manual_seed(0)
    try:
        truth = PROGRAMS[options.name]()
    except ImportError as error:
        print(f"not installed: {error}", file=sys.stderr)
        sys.exit(NOT_INSTALLED)
    print(json.dumps({"name": options.name, **truth}))


if __name__ == "__main__":
    main()
