"""A program that loads the profiler as the driver does, and whose main thread launches kernels as a recording says.

The recording has to name this thread, so it is written after the thread's id is printed and before a line comes in.
"""

import ctypes
import os
import sys
import threading
import time


def play(until):
    replay = ctypes.CDLL(os.environ["GPUWHY_CUPTI_PATH"])
    replay.gpuwhy_replay_play(ctypes.c_uint64(until))


def first_phase(end):
    while time.monotonic() < end:
        pass


class Second:
    def forward(self, end):
        while time.monotonic() < end:
            pass


def main():
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
    player = threading.Thread(target=play, args=(1_600_000_000,))
    player.start()
    begin = time.monotonic()
    first_phase(begin + 0.8)
    Second().forward(begin + 1.6)
    player.join()


main()
