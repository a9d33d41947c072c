"""A program that loads the profiler as the driver does, and whose main thread launches kernels according to a recording.

The recording has to name this thread, so it is written after the thread's id is printed and before a line is read.
"""

import ctypes
import os
import sys
import threading


def play(until):
    replay = ctypes.CDLL(os.environ["GPUWHY_CUPTI_PATH"])
    replay.gpuwhy_replay_play(ctypes.c_uint64(until))


def playing(until):
    """Plays on another thread: the work of this one lasts as long, however busy the machine is."""
    player = threading.Thread(target=play, args=(until,))
    player.start()
    return player


def first_phase(player):
    while player.is_alive():
        pass


class Second:
    def forward(self, player):
        while player.is_alive():
            pass


def main():
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
    first_phase(playing(800_000_000))
    Second().forward(playing(1_600_000_000))


main()
