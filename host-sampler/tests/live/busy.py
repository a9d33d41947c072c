"""Calls and returns without pause, so that every sample finds a moving stack."""

import os

from telling import say


def leaf(number):
    return number + 1


def short(number):
    return leaf(leaf(number))


def generator(count):
    for number in range(count):
        yield leaf(number)


def recursive(depth):
    if depth == 0:
        return short(0)
    return recursive(depth - 1)


class Kept:
    def method(self, number):
        return short(number)


def work(kept):
    total = 0
    for number in generator(20):
        total += short(number)
    total += recursive(12)
    total += kept.method(total)
    return total


def run():
    kept = Kept()
    while True:
        work(kept)


method = getattr(Kept.method.__code__, "co_qualname", "method")
say([
    "<module>>run", "run>work", "work>generator", "generator>leaf", "work>short", "short>leaf", "work>recursive",
    "recursive>recursive", "recursive>short", "work>" + method, method + ">short",
])
os.read(0, 1)
run()
