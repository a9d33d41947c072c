"""Trains a Transformer on documents that are split into tokens as they are read; see docs/guide/training.md."""
import random
import time

import torch
from torch import nn

WORDS, LENGTH, BATCH, VOCABULARY, WIDTH, STEPS = 1000, 256, 64, 32768, 768, 200


class Documents(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        source, tokens = random.Random(index), []
        for word in source.choices(["kernel", "launch", "memory", "profile"], k=WORDS):
            token = 0
            for letter in word:
                token = (token * 31 + ord(letter)) % VOCABULARY
            tokens.append(token)
        start = source.randrange(WORDS - LENGTH)
        return torch.tensor(tokens[start:start + LENGTH]), index % 2


def main():
    layer = nn.TransformerEncoderLayer(WIDTH, 12, dropout=0.0, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(VOCABULARY, WIDTH), nn.TransformerEncoder(layer, 6), nn.Flatten(), nn.Linear(LENGTH * WIDTH, 2)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    loader = torch.utils.data.DataLoader(Documents(), batch_size=BATCH)
    for step, (tokens, labels) in enumerate(loader):
        if step == 20:  # start-up is over
            torch.cuda.synchronize()
            began = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(tokens.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 19 + STEPS:
            break
    torch.cuda.synchronize()
    print(f"{STEPS / (time.perf_counter() - began):.1f} steps/s, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
