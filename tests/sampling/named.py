"""A program whose second thread has a name and launches kernels according to a recording.

The recording has to name that thread, so it is written after the thread's id is printed and before a line is read.
"""

import ctypes
import os
import sys
import threading

PR_SET_NAME = 15


def launch(player):
    while player.is_alive():
        pass


def work():
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"pt_autograd_0")
    print(threading.get_native_id(), flush=True)
    sys.stdin.readline()
    ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
    replay = ctypes.CDLL(os.environ["GPUWHY_CUPTI_PATH"])
    player = threading.Thread(target=replay.gpuwhy_replay_play, args=(ctypes.c_uint64(1_600_000_000),))
    player.start()
    launch(player)


worker = threading.Thread(target=work)
worker.start()
worker.join()
