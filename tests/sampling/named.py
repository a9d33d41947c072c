"""A program whose second thread has a name and launches kernels according to a recording, while the first one holds
the interpreter's lock.

The recording has to name that thread, so it is written after the thread's id is printed and before a line is read.
"""

import ctypes
import os
import sys
import threading

PR_SET_NAME = 15


def play(finished):
    replay = ctypes.CDLL(os.environ["GPUWHY_CUPTI_PATH"])
    replay.gpuwhy_replay_play(ctypes.c_uint64(1_600_000_000))
    finished.append(True)


def launch(finished):
    while not finished:
        pass


def hog(finished):
    while not finished:
        pass


def work(finished):
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"pt_autograd_0")
    print(threading.get_native_id(), flush=True)
    sys.stdin.readline()
    ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
    threading.Thread(target=play, args=(finished,)).start()
    launch(finished)


def main():
    finished = []
    worker = threading.Thread(target=work, args=(finished,))
    worker.start()
    hog(finished)
    worker.join()


main()
