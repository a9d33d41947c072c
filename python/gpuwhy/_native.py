"""Functions of `libprof.so` in this process, by ctypes (`inject/src/session.rs` has the table).

Functions that wait release the interpreter lock. Ranges take a microsecond and keep it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Callable

from . import __version__, _find
from ._errors import NotFound, NotMeasured, VersionMismatch

_TEXT_BYTES = 8192
# SessionError::code
_REASONS = {1: "no_cupti", 2: "other_profiler", 3: "refused", 4: "busy", 5: "not_open", 6: "timed_out", 7: "trace"}
INJECTION = "CUDA_INJECTION64_PATH"


class _Text(ctypes.Structure):
    _fields_ = [("text", ctypes.c_void_p), ("capacity", ctypes.c_size_t), ("length", ctypes.POINTER(ctypes.c_size_t))]


_BEGIN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, _Text)
_CALL = ctypes.CFUNCTYPE(ctypes.c_int, _Text)
_NOW = ctypes.CFUNCTYPE(ctypes.c_uint64)
_DOMAIN = ctypes.PYFUNCTYPE(ctypes.c_uint32, ctypes.c_char_p)
_PUSH = ctypes.PYFUNCTYPE(None, ctypes.c_uint32, ctypes.c_char_p)
_POP = ctypes.PYFUNCTYPE(None, ctypes.c_uint32)
_START = ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p)
_END = ctypes.PYFUNCTYPE(None, ctypes.c_uint64)
_VERSION = ctypes.PYFUNCTYPE(ctypes.c_char_p)


class _Table(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("begin", _BEGIN), ("flush", _CALL), ("end", _CALL), ("now", _NOW),
        ("nvtx", ctypes.c_void_p), ("domain", _DOMAIN), ("range_push", _PUSH), ("range_pop", _POP),
        ("range_start", _START), ("range_end", _END), ("mark", _PUSH), ("version", _VERSION),
    ]


class Functions:
    """Functions of a loaded library, which is never unloaded."""

    def __init__(self, path: str, injected: bool) -> None:
        self.path = path
        self.injected = injected
        self._library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        find = self._library.gpuwhy_session_functions
        find.restype = ctypes.POINTER(_Table)
        table: _Table = find().contents
        version = table.version() if table.size >= ctypes.sizeof(_Table) else None
        said = "older" if version is None else version.decode("ascii", "replace")
        if said != __version__:
            raise VersionMismatch(
                f"versions differ: the library {path} is {said}, and the module {os.path.dirname(__file__)} is "
                f"{__version__}. Install both from one wheel: pip install --force-reinstall gpuwhy")
        self._table = table
        self.domain: Callable[[bytes], int] = table.domain
        self.range_push: Callable[[int, bytes], None] = table.range_push
        self.range_pop: Callable[[int], None] = table.range_pop
        self.range_start: Callable[[int, bytes], int] = table.range_start
        self.range_end: Callable[[int], None] = table.range_end
        self.mark: Callable[[int, bytes], None] = table.mark

    def begin(self, file: int) -> None:
        """Starts a session whose trace goes into the descriptor, which the library closes."""
        self._call(lambda text: self._table.begin(0 if self.injected else 1, file, text))

    def flush(self) -> None:
        """Writes all completed device work to the trace before it returns."""
        self._call(self._table.flush)

    def end(self) -> None:
        """Ends the session and completes its trace."""
        self._call(self._table.end)

    @staticmethod
    def _call(function: Callable[[_Text], int]) -> None:
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        length = ctypes.c_size_t(0)
        code = function(_Text(ctypes.addressof(buffer), _TEXT_BYTES, ctypes.pointer(length)))
        if code != 0:
            words = buffer.raw[:min(length.value, _TEXT_BYTES)].decode("utf-8", "replace")
            raise NotMeasured(_REASONS.get(code, "internal"), words)


_lock = threading.Lock()
# The library of this process; None without measuring, and in the child of a fork.
found: Functions | None = None
# True if `found` is final: the library is loaded, or none will be injected.
is_decided = False
_is_fork = False


def _forked() -> None:
    global _lock, _is_fork, found
    _lock = threading.Lock()
    _is_fork, found = _is_fork or found is not None, None


os.register_at_fork(after_in_child=_forked)


def is_fork() -> bool:
    """True in the child of a fork of a process that had loaded the library, where it is inactive."""
    return _is_fork


def listening() -> Functions | None:
    """The library, if it is or will be in this process: loaded here, or to be injected by the CUDA driver. None without
    measuring. Never loads a library just to find out."""
    global found, is_decided
    if not is_decided:
        with _lock:
            path = os.environ.get(INJECTION)
            if not is_decided and path and os.path.basename(path) == _find.LIBRARY:
                found = _opened(path, injected=True)
            is_decided = True
    return found


def _opened(path: str, injected: bool) -> Functions | None:
    try:
        return Functions(path, injected)
    except (OSError, AttributeError):
        # Another library with that name; the driver will report any error.
        return None


def loaded() -> Functions:
    """The library. Loads it if necessary.

    Raises NotFound, VersionMismatch or NotMeasured.
    """
    global found
    if _is_fork:
        raise NotMeasured("not_open", "this process is the child of a fork; gpuwhy measures its parent. Start measuring "
                          "in the child by running it as a process of its own (spawn).")
    known = listening()
    if known is not None:
        return known
    with _lock:
        if found is None:
            path = str(_find.library())
            try:
                found = Functions(path, injected=False)
            except OSError as error:
                raise NotFound(f"{path} cannot be loaded: {error}") from error
            except AttributeError as error:
                raise NotFound(f"{path} is no libprof.so of gpuwhy: {error}") from error
        return found


def cuda_is_used() -> bool:
    """True if CUDA has a context in this process: on this thread, or the primary one of a device. Loads and creates
    nothing. `cuInit` alone does not count: a session after `torch.cuda.is_available()` is complete (H100, CUPTI 13.0)."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        count, context = ctypes.c_int(0), ctypes.c_void_p()
        if driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return False
        if driver.cuCtxGetCurrent(ctypes.byref(context)) == 0 and context:
            return True
        flags, active = ctypes.c_uint(0), ctypes.c_int(0)
        for device in range(count.value):
            if driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) == 0 and active.value:
                return True
        return False
    except (OSError, AttributeError):
        return False
