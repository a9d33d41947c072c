# mypy: disable-error-code="misc, no-any-return, unused-ignore"
# pyright: basic, reportMissingImports=false, reportGeneralTypeIssues=false
"""Lightning: `Trainer(callbacks=[gpuwhy.lightning.Callback("run.gpuwhy")])`.

Make the callback before the Trainer, which uses CUDA. Works with `lightning` and `pytorch_lightning`, 2.0 or later.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Callable

from ._ranges import range as named_range
from ._session import Schedule
from ._training import Guarded

if TYPE_CHECKING:
    from ._report import Report


def _library() -> Any:
    """The library that the program has imported; both may be installed, and their classes differ."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if name in sys.modules:
            return sys.modules[name]
    try:
        import lightning.pytorch as library
    except ImportError:
        import pytorch_lightning as library
    return library


_lightning: Any = _library()


class Callback(_lightning.Callback):
    """Measures `fit`: each batch is a step, validation and checkpoints are separate ranges. Errors of gpuwhy never reach
    the training. With several ranks each writes a trace, and rank 0 prints. The figures go to the logger at the end.
    """

    def __init__(
            self, trace: str | os.PathLike[str] | None = None, *, schedule: Schedule | None = None, quiet: bool | None = None,
            log: bool = True, on_report: Callable[[Report], object] | None = None) -> None:
        super().__init__()
        self._guarded = Guarded(trace, schedule, quiet, on_report)
        self._log = log

    @property
    def report(self) -> Report | None:
        """The last report; None before the first."""
        return self._guarded.report

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._guarded.start()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._guarded.step()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._guarded.begin_other("validation")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._guarded.end_other()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._guarded.stop()
        report = self._guarded.report
        logger = getattr(trainer, "logger", None)
        if self._log and report is not None and logger is not None:
            try:
                logger.log_metrics(report.metrics(), step=trainer.global_step)
            except Exception as error:
                print(f"gpuwhy: the logger takes no metrics: {error}", file=sys.stderr)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._guarded.stop()


class Profiler(_lightning.profilers.Profiler):
    """`Trainer(profiler=gpuwhy.lightning.Profiler())`: Lightning's actions (`run_training_batch`, `optimizer_step`, hooks) become
    ranges. They are recorded if measuring is on: by the callback, a profile, or `python -m gpuwhy`."""

    def __init__(self) -> None:
        super().__init__(dirpath=None, filename=None)
        self._open: dict[str, list[named_range]] = {}

    def start(self, action_name: str) -> None:
        opened = named_range(f"[pl][profile]{action_name}")
        opened.__enter__()
        self._open.setdefault(action_name, []).append(opened)

    def stop(self, action_name: str) -> None:
        opened = self._open.get(action_name)
        if opened:
            opened.pop().__exit__(None, None, None)
