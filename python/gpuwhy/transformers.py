# mypy: disable-error-code="misc, no-any-return, unused-ignore"
# pyright: basic, reportMissingImports=false, reportGeneralTypeIssues=false
"""Hugging Face: `Trainer(callbacks=[gpuwhy.transformers.Callback("run.gpuwhy")])`.

Make the callback before the model is moved to a device and before the TrainingArguments, which search for devices.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable

from transformers import TrainerCallback

from ._ranges import mark
from ._session import Schedule
from ._training import Guarded

if TYPE_CHECKING:
    from ._report import Report


class Callback(TrainerCallback):
    """Measures `train`: each optimizer step is a step; evaluation and saving are ranges. Errors of gpuwhy never reach the
    training. With several ranks each writes a trace, and rank 0 prints. `report.metrics()` has the figures for loggers.
    """

    def __init__(
            self, trace: str | os.PathLike[str] | None = None, *, schedule: Schedule | None = None, quiet: bool | None = None,
            on_report: Callable[[Report], object] | None = None) -> None:
        super().__init__()
        self._guarded = Guarded(trace, schedule, quiet, on_report)

    @property
    def report(self) -> Report | None:
        """The last report; None before the first."""
        return self._guarded.report

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._guarded.start()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._guarded.step()

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        mark("accumulated")

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        mark("evaluated")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        mark("saved")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._guarded.stop()
