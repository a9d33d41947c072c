"""Every kind of frame, one after another."""

import functools
import threading

from telling import wait


def function():
    wait()


class Outer:
    class Inner:
        def method(self, depth):
            if depth:
                return self.method(depth - 1)
            return wait()

        @property
        def attribute(self):
            return wait()

        @staticmethod
        def static():
            wait()


def generator():
    yield 1
    wait()
    yield 2


def delegating():
    yield from generator()


def closure():
    captured = 1

    def inner():
        return captured, wait()

    return inner


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(
            *arguments
        )

    return wrapper


@decorated
def over_many_lines(
    first,
    second,
):
    values = [
        first,
        second,
    ]


    values.sort(
        key=lambda value:
            wait() or value
    )


def from_c():
    sorted([3, 1], key=lambda value: value if value == 3 else (wait(), value)[1])
    list(map(lambda _: wait(), [1]))


def größe_名前():
    wait()


def comprehension():
    return [wait() for _ in (1,)] + list(wait() for _ in (1,))


def handler():
    try:
        raise ValueError
    except ValueError:
        with threading.Lock():
            wait()


exec("\n" * 300 + "def far_down():\n" + "    pass\n" * 400 + "    wait()\n")

function()
Outer.Inner().method(20)
Outer.Inner().attribute
Outer.Inner.static()
list(delegating())
closure()()
over_many_lines(1, 2)
from_c()
größe_名前()
comprehension()
handler()
globals()["far_down"]()

other = threading.Thread(target=Outer.Inner().method, args=(3,))
other.start()
other.join()
