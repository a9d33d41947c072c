"""A program that loads the profiler as the driver does and plays a recorded session while it works and waits."""

import ctypes
import os
import sys
import threading
import time


def play(until):
    replay = ctypes.CDLL(os.environ["GPUWHY_CUPTI_PATH"])
    replay.gpuwhy_replay_play(ctypes.c_uint64(until))


def load_batch():
    time.sleep(0.2)


def compute():
    begin = time.monotonic()
    while time.monotonic() - begin < 0.2:
        pass


def train(player):
    while player.is_alive():
        load_batch()
        compute()


def worker():
    """A forked child that waits for work until this process ends, and exits normally."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(write)
        os.read(read, 1)
        sys.exit()
    os.close(read)
    return write


def main():
    ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
    work = worker()
    player = threading.Thread(target=play, args=(int(os.environ["UNTIL"]),))
    player.start()
    train(player)
    os.close(work)
    os.wait()


main()
