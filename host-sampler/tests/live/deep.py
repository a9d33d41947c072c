"""A stack deeper than the limit of a sample."""

from telling import wait


def bottom():
    wait()


def down(depth):
    if depth:
        down(depth - 1)
    else:
        bottom()


down(200)
