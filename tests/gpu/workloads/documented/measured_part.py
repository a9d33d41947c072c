"""Measures a part of a program."""

import statements

if statements.REPLAY:
    model, loader = statements.play, [0]
else:
    import torch

    # Created without CUDA: the snippet starts measuring before the first CUDA call.
    layers = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8)))

    def model(batch):
        return layers.cuda()(batch.cuda()).sum()

    loader = torch.utils.data.DataLoader(torch.randn(64 * 100, 512), batch_size=64)

statements.run({"model": model, "loader": loader})
