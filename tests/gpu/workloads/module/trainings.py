"""A training with Lightning or the Trainer of transformers under gpuwhy's callback: `python trainings.py
lightning|trainer [--broken]`. Prints JSON. With --broken gpuwhy fails in the middle, and the training must not.
"""

from __future__ import annotations

import json
import sys
import tempfile

BATCHES = 64


def lightning(callback_of) -> object:
    import torch

    try:
        import lightning.pytorch as library
    except ImportError:
        import pytorch_lightning as library
    import gpuwhy.lightning

    callback = callback_of(gpuwhy.lightning.Callback)

    class Module(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))

        def training_step(self, batch, _):
            return (self.layers(batch[0]) - 1).square().mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32 * BATCHES, 256)), batch_size=32)
    trainer = library.Trainer(
        max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[callback], profiler=gpuwhy.lightning.Profiler())
    trainer.fit(Module(), data)
    return callback


def trainer(callback_of) -> object:
    import gpuwhy.transformers

    callback = callback_of(gpuwhy.transformers.Callback)
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    class Tokens(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 8 * BATCHES

        def __getitem__(self, index):
            tokens = (torch.arange(64) * (index % 5 + 1)) % 1000
            return {"input_ids": tokens, "labels": tokens}

    config = LlamaConfig(vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=BATCHES, per_device_train_batch_size=8, report_to=[], disable_tqdm=True,
            save_strategy="no", logging_strategy="no")
        Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=Tokens(), callbacks=[callback]).train()
    return callback


def main(which: str, broken: bool) -> dict:
    def callback_of(kind):
        if not broken:
            return kind(f"{which}.gpuwhy", quiet=True)
        made = kind("/proc/nowhere/trace.gpuwhy", quiet=True)
        return made

    callback = {"lightning": lightning, "trainer": trainer}[which](callback_of)
    report = callback.report
    if report is None:
        return {"report": False}
    ranges = {row["message"]: row["host"]["count"] for row in report.ranges}
    return {"report": True, "steps": ranges.get("step", 0), "kernels": report.completeness["records"]["kernels"],
            "bottleneck": report.bottleneck.cause, "without_launch": report.completeness["activities_without_launch"],
            "named": len(ranges)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], "--broken" in sys.argv)))
