"""Programs of libraries built on PyTorch: transformers, Lightning, timm, PyTorch Geometric. Weights are random; nothing
is fetched."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Callable

import torch

from programs import loop, say

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)


def llama(width: int = 256, layers: int = 4):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers, num_attention_heads=width // 64,
        num_key_value_heads=width // 64, max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=None)
    return LlamaForCausalLM(config).cuda().eval()


def generate(width: int = 256, layers: int = 4, **options: object) -> Callable[[], None]:
    """Tokens one by one."""

    def program() -> None:
        model = llama(width, layers)
        prompt = torch.arange(1, 17, device="cuda").reshape(2, 8)
        tokens = prompt

        def step(_: int) -> None:
            nonlocal tokens
            tokens = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=64, do_sample=False, **options)

        loop(6, step, torch.cuda.synchronize, warm=2)
        say(tokens.sum().item())

    return program


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=1000, n_positions=64, n_embd=256, n_layer=4, n_head=4, bos_token_id=1, eos_token_id=1)).cuda()


def trainer(build: Callable[[], torch.nn.Module] = llama, workers: int = 0) -> None:
    """The Trainer of transformers."""
    import programs
    from transformers import PrinterCallback, Trainer, TrainingArguments

    class Tokens(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 512

        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            tokens = (torch.arange(64) * (index % 5 + 1)) % 1000
            return {"input_ids": tokens, "labels": tokens}

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=60 * programs.repeats, dataloader_num_workers=workers, per_device_train_batch_size=8, report_to=[], disable_tqdm=True, save_strategy="no",
            logging_strategy="no", seed=0, data_seed=0)
        runner = Trainer(model=build().train(), args=arguments, train_dataset=Tokens())
        # It prints the duration of the training.
        runner.remove_callback(PrinterCallback)
        losses = []
        # The loop is inside, so one repetition is enough regardless of the program's option.
        once, programs.repeats = programs.repeats, 1
        loop(2, lambda _: losses.append(runner.train().training_loss), torch.cuda.synchronize, warm=1)
        programs.repeats = once
    say(losses[-1])


def lightning() -> None:
    """A Trainer of Lightning."""
    try:
        import lightning as library
    except ImportError:
        import pytorch_lightning as library

    class Module(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
            self.last = 0.0

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            loss = (self.layers(batch[0]) - 1).square().mean()
            self.last = loss.detach()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(2048, 256))
    module = Module()

    def fit(_: int) -> None:
        trainer = library.Trainer(
            max_epochs=2, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False)
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=32))

    loop(2, fit, torch.cuda.synchronize, warm=1)
    say(module.last.item())


def timm() -> None:
    """Training steps of a ResNet and a vision transformer in mixed precision."""
    import timm as library

    total = 0.0
    for name in ("resnet18", "vit_tiny_patch16_224"):
        torch.manual_seed(0)
        module = library.create_model(name, pretrained=False, num_classes=10).cuda()
        optimizer = torch.optim.SGD(module.parameters(), lr=1e-4)
        x, y = torch.randn(8, 3, 224, 224, device="cuda"), torch.arange(8, device="cuda") % 10
        last = torch.zeros((), device="cuda")

        def step(_: int) -> None:
            nonlocal last
            with torch.autocast("cuda", torch.bfloat16):
                last = torch.nn.functional.cross_entropy(module(x), y)
            optimizer.zero_grad()
            last.backward()
            optimizer.step()

        loop(20, step, torch.cuda.synchronize)
        total += round(last.item(), 1)
    say(total)


def geometric() -> None:
    """A graph network of PyTorch Geometric."""
    from torch_geometric.nn import GCNConv

    torch.manual_seed(0)
    nodes = 4096
    edges = torch.randint(0, nodes, (2, 8 * nodes)).cuda()
    x, layers = torch.randn(nodes, 64).cuda(), torch.nn.ModuleList([GCNConv(64, 64), GCNConv(64, 16)]).cuda()
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3)
    last = torch.zeros((), device="cuda")

    def step(_: int) -> None:
        nonlocal last
        last = (layers[1](torch.relu(layers[0](x, edges)), edges) - 1).square().mean()
        optimizer.zero_grad()
        last.backward()
        optimizer.step()

    loop(150, step, torch.cuda.synchronize)
    say(last.item())


PROGRAMS = {
    "generate": generate(), "generate_static": generate(cache_implementation="static"), "trainer": trainer, "lightning": lightning,
    "timm": timm, "geometric": geometric, "generate_wide": generate(width=1024, layers=8),
    "trainer_gpt2": lambda: trainer(gpt2, workers=2)}
