"""As train.py, with work and waits in C functions: sorting, and a lock that is never released. With KILL the system kills
the program if it opens perf events."""

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


class Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter))]


def forbid_perf_events():
    # Loads the number of the system call, and kills the process for perf_event_open on x86-64.
    filters = (Filter * 4)((0x20, 0, 0, 0), (0x15, 0, 1, 298), (0x06, 0, 0, 0x80000000), (0x06, 0, 0, 0x7FFF0000))
    number, prctl = ctypes.c_ulong, ctypes.CDLL(None).prctl
    assert prctl(38, number(1), number(0), number(0), number(0)) == 0
    assert prctl(22, number(2), ctypes.byref(Program(4, filters))) == 0


def main():
    if os.environ.get("KILL"):
        forbid_perf_events()
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
