"""Exceptions and warnings of this package."""

from __future__ import annotations


class NotMeasured(RuntimeError):
    """Measuring is impossible, or a session cannot be started or ended. `reason` is one of `no_cupti` (or no driver),
    `other_profiler`, `refused`, `busy`, `not_open`, `timed_out`, `trace`, `internal`."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class NotFound(RuntimeError):
    """The command or `libprof.so` is in none of the expected places; the text lists them."""


class VersionMismatch(RuntimeError):
    """The package, the command and the library have different versions; the text has the paths."""


class CommandFailed(RuntimeError):
    """The command `gpuwhy` failed. `code` is its exit code; the text is its error message."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class NothingMeasured(UserWarning):
    """Measuring is impossible in this process, such as on a machine without a GPU: the report is empty."""


class LateStart(UserWarning):
    """Measuring started after CUDA had a context: the calls that launch device work may be missing."""
