"""Ranges, marks and steps of the program, as NVTX ranges that only gpuwhy receives.

Without measuring, each only checks a variable. A range never loads a library or starts measuring.
"""

from __future__ import annotations

import functools
import inspect
import sys
from types import TracebackType
from typing import Any, Callable, Iterable, Iterator, TypeVar, cast, overload

from . import _native

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_names: dict[str, bytes] = {}
_domains: dict[str, int] = {}
# Maximum number of names kept as bytes.
_MOST_NAMES = 4096


def _bytes(name: str) -> bytes:
    known = _names.get(name)
    if known is None:
        known = name.split("\0", 1)[0].encode("utf-8", "replace")
        if len(_names) < _MOST_NAMES:
            _names[name] = known
    return known


def _domain(functions: _native.Functions, name: str | None) -> int:
    if not name:
        return 0
    known = _domains.get(name)
    if known is None:
        known = _domains[name] = functions.domain(_bytes(name))
    return known


class range:
    """A range of the program: `with range("forward"):`, or a decorator, `@range` or `@range("forward")`.

    Ranges of a thread nest. Those of coroutines may end on another thread and in any order. `domain` names a group of
    ranges. Reports show host and device time by range.
    """

    __slots__ = ("_name", "_domain_name", "_functions", "_number")

    @overload
    def __new__(cls, name: F) -> F: ...  # type: ignore[misc]
    @overload
    def __new__(cls, name: str, *, domain: str | None = None) -> range: ...

    def __new__(cls, name: Any, *, domain: str | None = None) -> Any:
        made = object.__new__(cls)
        # Test for strings first: this is called in loops.
        if type(name) is not str and callable(name):
            made._name, made._domain_name = getattr(name, "__qualname__", "range"), None
            return made(name)
        if not isinstance(name, str):
            raise _wrong("range", name)
        made._name, made._domain_name = name, domain
        return made

    _name: str
    _domain_name: str | None
    _functions: _native.Functions | None
    _number: int

    def __enter__(self) -> range:
        functions = self._functions = _native.found if _native.is_decided else _native.listening()
        if functions is not None:
            self._number = number = _domain(functions, self._domain_name) if self._domain_name else 0
            name = self._name
            functions.range_push(number, _names.get(name) or _bytes(name))
        return self

    def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        functions = self._functions
        if functions is not None:
            functions.range_pop(self._number)

    def __call__(self, function: F) -> F:
        name, domain = self._name, self._domain_name
        wrapped: Any
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def in_started(*arguments: Any, **named: Any) -> Any:
                functions = _native.listening()
                number = functions.range_start(_domain(functions, domain), _bytes(name)) if functions else 0
                try:
                    return await function(*arguments, **named)
                finally:
                    if functions:
                        functions.range_end(number)

            wrapped = in_started
        else:

            @functools.wraps(function)
            def in_pushed(*arguments: Any, **named: Any) -> Any:
                # A new range for each call, because functions may be recursive.
                with range(name, domain=domain):
                    return function(*arguments, **named)

            wrapped = in_pushed
        return cast(F, wrapped)


def _wrong(what: str, name: Any) -> TypeError:
    # Raised even without measuring: a program must not fail only under the profiler.
    return TypeError(f"the name of a {what} must be str, not {type(name).__name__}")


def mark(name: str, *, domain: str | None = None) -> None:
    """Records a point in time of the program."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _wrong("mark", name)
    functions = _native.listening()
    if functions is not None:
        functions.mark(_domain(functions, domain), _bytes(name))


class Steps:
    """Steps of a loop: each is a range from one call to the next, on any thread."""

    def __init__(self, name: str = "step") -> None:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _wrong("step", name)
        self._name = _bytes(name)
        self._open = 0
        self._functions: _native.Functions | None = None

    def next(self) -> None:
        """Ends the open step and starts the next."""
        self.end()
        functions = _native.listening()
        if functions is not None:
            self._functions = functions
            self._open = functions.range_start(0, self._name)

    def end(self) -> None:
        """Ends the open step, if there is one."""
        if self._functions is not None and not _native.is_fork():
            self._functions.range_end(self._open)
        self._functions = None


def _is_worker() -> bool:
    """True in a data loading process of PyTorch, which has no steps."""
    data = sys.modules.get("torch.utils.data")
    info = getattr(data, "get_worker_info", None)
    return info is not None and info() is not None


def steps(iterable: Iterable[T], *, name: str = "step") -> Iterator[T]:
    """Iterates over `iterable`, usually a data loader. Each item is a step, and waiting for it is the data loader's time.

    A step ends when the next item is requested, so the loader's time belongs to the step that it delivers to. Also advances
    the schedule of an open `profile()`.
    """
    if _is_worker():
        yield from iterable
        return
    from ._session import step_of_open_profile

    counted, iterator = Steps(name), iter(iterable)
    # The name that PyTorch uses, by which the engine recognizes loaders.
    waiting = f"enumerate(DataLoader)#{type(iterator).__name__}.__next__"
    try:
        while True:
            counted.next()
            try:
                with range(waiting):
                    item = next(iterator)
            except StopIteration:
                return
            yield item
            counted.end()
            step_of_open_profile()
    finally:
        counted.end()
