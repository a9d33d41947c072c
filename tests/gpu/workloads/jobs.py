"""Jobs of two ranks as users write them, started by torchrun.

    ddp       DistributedDataParallel, a small GPT
    fsdp      the same, sharded by FSDP2 (fully_shard)
    tensor    the same, each layer divided between the ranks (DTensor)
    pipeline  the same, half of the layers on each rank, four microbatches a step (GPipe)
    serve     continuous batching of transformers, each layer divided between the ranks

Rank 0 prints the result. --profile FOLDER records each rank with torch.profiler from its first CUDA call to the end and
writes FOLDER/rankN.json. --step-time prints the mean time of a step of rank 0 to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import random
import sys
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn import functional

WARM_UP = 5
BATCH, SEQUENCE, HEADS = 8, 512, 16
# All devices are the CPU in a rehearsal of the program.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    """A layer of a GPT, with separate projections, so that it can be divided by heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        heads = [
            part(normed).unflatten(-1, (-1, x.shape[-1] // HEADS)).transpose(1, 2)
            for part in (self.query, self.key, self.value)]
        attention = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm_mlp(x))))


def gpt(options: argparse.Namespace) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(options.width) for _ in range(options.layers)))


def batch(options: argparse.Namespace, rank: int) -> torch.Tensor:
    generator = torch.Generator(device=DEVICE).manual_seed(1 + rank)
    return torch.randn(BATCH, SEQUENCE, options.width, device=DEVICE, generator=generator)


def training(model: nn.Module, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """A step: forward and backward pass in bfloat16, and AdamW."""
    # One group for each type: operations on many tensors take no mixture of DTensor and Tensor.
    groups: dict[type, list[nn.Parameter]] = {}
    for parameter in model.parameters():
        groups.setdefault(type(parameter.data), []).append(parameter)
    optimizer = torch.optim.AdamW([{"params": group} for group in groups.values()], lr=1e-4, foreach=True)

    def step() -> torch.Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = (model(x).float() - 1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def ddp(options: argparse.Namespace, rank: int) -> Callable[[], torch.Tensor]:
    model = nn.parallel.DistributedDataParallel(gpt(options).to(DEVICE), device_ids=[rank] if DEVICE == "cuda" else None)
    return training(model, batch(options, rank))


def fsdp(options: argparse.Namespace, rank: int) -> Callable[[], torch.Tensor]:
    from torch.distributed.fsdp import fully_shard

    mesh = distributed.init_device_mesh(DEVICE, (2,))
    model = gpt(options).to(DEVICE)
    for block in model:
        fully_shard(block, mesh=mesh)
    return training(fully_shard(model, mesh=mesh), batch(options, rank))


def tensor(options: argparse.Namespace, rank: int) -> Callable[[], torch.Tensor]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = distributed.init_device_mesh(DEVICE, (2,))
    model = gpt(options).to(DEVICE)
    columns, rows = ("query", "key", "value", "up"), ("out", "down")
    for block in model:
        plan = {**{name: ColwiseParallel() for name in columns}, **{name: RowwiseParallel() for name in rows}}
        parallelize_module(block, mesh, plan)
    # Both ranks compute the same batch.
    return training(model, batch(options, 0))


def pipeline(options: argparse.Namespace, rank: int) -> Callable[[], torch.Tensor]:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    model = gpt(options)
    half = len(model) // 2
    part = (model[:half] if rank == 0 else model[half:]).to(DEVICE)
    stage = PipelineStage(part, rank, 2, torch.device(DEVICE, rank if DEVICE == "cuda" else None))
    schedule = ScheduleGPipe(stage, 4, loss_fn=lambda output, target: (output.float() - target).square().mean())
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-4, foreach=True)
    x, target = batch(options, 0), torch.ones((), device=DEVICE).expand(BATCH, SEQUENCE, options.width)

    def step() -> torch.Tensor:
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=target, losses=losses)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.stack(losses).mean() if losses else torch.zeros((), device=DEVICE)
        distributed.all_reduce(loss)
        return loss

    return step


def serve(options: argparse.Namespace, rank: int) -> Callable[[], torch.Tensor]:
    """A step answers all prompts."""
    from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

    with tempfile.TemporaryDirectory() as own:
        folder = [own]
        distributed.broadcast_object_list(folder)
        torch.manual_seed(0)
        config = LlamaConfig(
            num_hidden_layers=options.layers, hidden_size=options.width, intermediate_size=2816, num_attention_heads=HEADS,
            num_key_value_heads=4, vocab_size=32000)
        if rank == 0:
            LlamaForCausalLM(config).bfloat16().save_pretrained(folder[0])
        distributed.barrier()
        model = LlamaForCausalLM.from_pretrained(folder[0], tp_plan="auto", dtype=torch.bfloat16).eval()
        distributed.barrier()
    model.set_attn_implementation("paged|sdpa")
    choose = random.Random(1)
    prompts = [[choose.randrange(5, 31000) for _ in range(choose.randrange(16, 128))] for _ in range(16)]
    generation = GenerationConfig(max_new_tokens=options.tokens, do_sample=False, eos_token_id=31999, pad_token_id=0)
    batching = ContinuousBatchingConfig(num_blocks=512, max_batch_tokens=256)

    def step() -> torch.Tensor:
        results = model.generate_batch(
            inputs=prompts, generation_config=generation, continuous_batching_config=batching, progress_bar=False)
        return torch.tensor(float(sum(len(result.generated_tokens) for result in results.values())))

    return step


JOBS = {"ddp": ddp, "fsdp": fsdp, "tensor": tensor, "pipeline": pipeline, "serve": serve}


def run(options: argparse.Namespace, rank: int) -> None:
    """The job of one rank. A process group exists."""
    step = JOBS[options.job](options, rank)
    steps = 1 if options.job == "serve" else options.steps
    warm_up = 0 if options.job == "serve" else WARM_UP
    began = 0.0
    for number in range(warm_up + steps):
        if number == warm_up:
            distributed.barrier()
            began = time.perf_counter()
        with torch.cuda.nvtx.range("step") if DEVICE == "cuda" else contextlib.nullcontext():
            result = step()
    value = result.item()
    if rank == 0:
        if options.step_time:
            print(f"step {(time.perf_counter() - began) / steps * 1e3:.4f} ms", file=sys.stderr)
        # Sums of the backward pass have no fixed order.
        print(f"{options.job} {value:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--profile", type=pathlib.Path)
    parser.add_argument("--step-time", action="store_true")
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    recording = contextlib.nullcontext()
    if options.profile:
        activities = [torch.profiler.ProfilerActivity.CPU, *([torch.profiler.ProfilerActivity.CUDA] if DEVICE == "cuda" else [])]
        recording = torch.profiler.profile(activities=activities)
    with recording as profiler:
        if DEVICE == "cuda":
            torch.cuda.set_device(rank)
        distributed.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
        run(options, rank)
        distributed.destroy_process_group()
    if profiler:
        profiler.export_chrome_trace(str(options.profile / f"rank{rank}.json"))


if __name__ == "__main__":
    main()
