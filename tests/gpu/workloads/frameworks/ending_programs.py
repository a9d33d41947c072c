"""Programs that end in unusual ways after some PyTorch work."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch

from programs import loop, say


def ending(end: Callable[[], None]) -> Callable[[], None]:
    def program() -> None:
        values = torch.ones(256, 256, device="cuda")

        def step(_: int) -> None:
            values.mul_(0.999).add_(0.001)

        loop(500, step, torch.cuda.synchronize)
        say(values.sum().item())
        sys.stdout.flush()
        end()

    return program


def fail() -> None:
    raise RuntimeError("the program ends by an exception")


PROGRAMS = {
    "exception": ending(fail), "sys_exit": ending(lambda: sys.exit(5)), "os_exit": ending(lambda: os._exit(4)),
    "fork": ending(lambda: sys.exit(os.waitstatus_to_exitcode(os.wait()[1]) if os.fork() else 3))}
