"""Two threads that compete for the interpreter lock all the time."""

import os
import threading

from telling import say


def spin():
    while True:
        pass




begin = threading.Event()


def second():
    begin.wait()
    spin()


other = threading.Thread(target=second, daemon=True)
other.start()
say([str(other.native_id)])
os.read(0, 1)
begin.set()
spin()
