"""As train.py, with work and waits in functions of C: sorting, and a lock that nobody releases."""

import ctypes
import os
import random
import threading


def play(until):
    replay = ctypes.CDLL(os.environ["GPUWHY_CUPTI_PATH"])
    replay.gpuwhy_replay_play(ctypes.c_uint64(until))


def wait(lock):
    lock.acquire(timeout=0.05)


def order(numbers):
    sorted(numbers)


def main():
    ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
    player = threading.Thread(target=play, args=(int(os.environ["UNTIL"]),))
    player.start()
    numbers = [random.random() for _ in range(200000)]
    lock = threading.Lock()
    lock.acquire()
    while player.is_alive():
        wait(lock)
        order(numbers)


main()
