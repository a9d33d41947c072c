"""Why is my CUDA program not faster? Measure a part of it, and read reports and traces.

Importing this module does nothing: no library is loaded and no process is started. `profile()` or `prepare()` do.

    import gpuwhy

    with gpuwhy.profile("attention.gpuwhy") as p:
        for batch in gpuwhy.steps(loader):
            with gpuwhy.range("forward"):
                loss = model(batch)
    p.report.bottleneck.cause          # 'launch'

All figures come from the command `gpuwhy` and the library `libprof.so`, which are in the same package.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._errors import CommandFailed as CommandFailed
    from ._errors import LateStart as LateStart
    from ._errors import NotFound as NotFound
    from ._errors import NothingMeasured as NothingMeasured
    from ._errors import NotMeasured as NotMeasured
    from ._errors import VersionMismatch as VersionMismatch
    from ._find import environment as environment
    from ._ranges import mark as mark
    from ._ranges import range as range
    from ._ranges import steps as steps
    from ._report import Device as Device
    from ._report import Report as Report
    from ._report import Bottleneck as Bottleneck
    from ._session import Profile as Profile
    from ._session import Schedule as Schedule
    from ._session import State as State
    from ._session import prepare as prepare
    from ._session import profile as profile
    from ._tables import Table as Table
    from ._trace import Diff as Diff
    from ._trace import Run as Run
    from ._trace import Trace as Trace
    from ._trace import diff as diff
    from ._trace import open as open
    from ._trace import runs as runs

__version__ = "0.2.0"

# Module of each name; modules are imported at their first use.
_PLACES = {
    "CommandFailed": "_errors", "LateStart": "_errors", "NotFound": "_errors", "NotMeasured": "_errors",
    "NothingMeasured": "_errors", "VersionMismatch": "_errors",
    "environment": "_find",
    "mark": "_ranges", "range": "_ranges", "steps": "_ranges",
    "Device": "_report", "Report": "_report", "Bottleneck": "_report",
    "Profile": "_session", "Schedule": "_session", "State": "_session", "prepare": "_session", "profile": "_session",
    "Table": "_tables",
    "Diff": "_trace", "Run": "_trace", "Trace": "_trace", "diff": "_trace", "open": "_trace", "runs": "_trace",
}

__all__ = [  # noqa: F822
    "CommandFailed", "Device", "Diff", "LateStart", "NotFound", "NotMeasured", "NothingMeasured", "Profile", "Report",
    "Run", "Schedule", "State", "Table", "Trace", "Bottleneck", "VersionMismatch", "diff", "environment", "mark", "open", "prepare", "profile",
    "range", "runs", "steps",
]


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'gpuwhy' has no attribute {name!r}")
    import importlib

    found: object = getattr(importlib.import_module("gpuwhy." + place), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def load_ipython_extension(shell: object) -> None:
    """`%load_ext gpuwhy`: defines `%%gpuwhy`, and prepares this process so that later sessions are complete."""
    from .jupyter import load

    load(shell)
