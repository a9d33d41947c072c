"""What can go wrong, by type."""

from __future__ import annotations


class NotMeasured(RuntimeError):
    """Nothing can be measured, or a session cannot be begun or ended. `reason` is one of `no_cupti`,
    `other_profiler`, `refused`, `busy`, `not_open`, `timed_out`, `trace`, `internal`."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class NotFound(RuntimeError):
    """The command or `libprof.so` is in none of the places where it can be; the text lists them."""


class VersionMismatch(RuntimeError):
    """The module, the command and the library are of different versions; the text has the paths."""


class CommandFailed(RuntimeError):
    """The command `gpuwhy` failed. `code` is its exit code; the text is what it said."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class LateStart(UserWarning):
    """Measuring starts when CUDA has a context: the calls that launch device work may be missing."""
