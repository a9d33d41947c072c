"""Shared by the programs: printing their stack, and waiting to be released."""

import os
import sys
import threading


def name(code):
    return getattr(code, "co_qualname", code.co_name)


def wait():
    """Prints the stack of this thread as it will be while it waits, then waits."""
    lines = []
    frame = sys._getframe()
    # `read_line` below is computed from the fixed distance between this function and its read.
    lines.append("%s %s:%d" % (name(frame.f_code), os.path.basename(frame.f_code.co_filename), read_line))
    frame = frame.f_back
    while frame is not None:
        code = frame.f_code
        lines.append("%s %s:%d" % (name(code), os.path.basename(code.co_filename), frame.f_lineno))
        frame = frame.f_back
    say(reversed(lines))
    os.read(0, 1)


read_line = wait.__code__.co_firstlineno + 12


def say(lines):
    print("ready %d" % threading.get_native_id())
    for line in lines:
        print(line)
    print(".", flush=True)
