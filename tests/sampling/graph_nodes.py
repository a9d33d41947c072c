"""A program that loads the profiler as the driver does, and captures a graph on two lines.

ctypes releases the interpreter's lock around a call, as PyTorch does around a launch.
"""

import ctypes
import os

play = ctypes.CDLL(os.environ["GPUWHY_CUPTI_PATH"]).gpuwhy_replay_play


class Block:
    def forward(self, depth):
        if depth > 0:
            return self.forward(depth - 1)
        return play(ctypes.c_uint64(50_000_000))


ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
Block().forward(30)
play(ctypes.c_uint64(2**63))
