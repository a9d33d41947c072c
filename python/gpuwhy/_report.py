"""A report, with types. Every figure is from the JSON report (docs/reference/report.md), or a sum of figures in it; this
module computes nothing else."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Tuple, cast

from ._schema import CompletenessJson, DeviceJson, Fix, Ranked, Remedy, ReportJson, Scenario, BottleneckJson
from ._tables import Table


class Bottleneck:
    """The bottleneck of the run."""

    def __init__(self, raw: BottleneckJson) -> None:
        self.raw = raw
        self.cause: str = raw["cause"]
        """The cause: `gpu_compute`, `launch`, `data_loading`, `host_cpu`, `copy`, `sync`, `communication`, `allocator`,
        `kernel_build`, `other_process`, `no_work` or `cannot_tell`."""
        self.share: float = raw["share"]
        """Its part of a typical step, or of the time after start-up, 0 to 1."""
        self.best_case: Scenario | None = raw.get("best_case")
        """The best case of the first lines of the report, with what it is without (`kind`); None if unknown."""
        self.evidence: tuple[str, ...] = tuple(raw["evidence"])
        self.recommendation: str = raw["recommendation"]
        self.remedies: tuple[Remedy, ...] = tuple(raw.get("remedies", ()))
        """What to change, the first to try first; `recommendation` begins with it. Empty in reports of older versions."""
        self.ranking: tuple[Ranked, ...] = tuple(raw["ranking"])
        self.plan: tuple[Fix, ...] = tuple(raw["plan"])
        """What to do first, what it brings (`speedup`, with the interval `low` to `high`), and the bottleneck then."""

    def __repr__(self) -> str:
        return f"<Bottleneck {self.cause} {self.share:.0%}>"


class Device:
    """One GPU of the run."""

    def __init__(self, raw: DeviceJson) -> None:
        self.raw = raw
        self.id: int = raw["id"]
        self.name: str = raw["name"]
        self.window_ns: int = raw["window_ns"]
        """From the first operation to the end of the last, nanoseconds."""
        self.leaves: Mapping[str, int] = raw["leaves"]
        """Nanoseconds by leaf; they sum to `window_ns`."""
        self.kernels = Table(cast("list[Mapping[str, Any]]", raw["kernels"]))
        self.copies = Table(cast("list[Mapping[str, Any]]", raw["copies"]))

    @property
    def step_ns(self) -> int | None:
        """Duration of the median step, nanoseconds; None if no steps were found."""
        steps = self.raw["steps"]
        return None if steps is None else steps["median_ns"]

    @property
    def untraced_step_ns(self) -> int | None:
        """Estimated duration of a step without gpuwhy, nanoseconds."""
        untraced = self.raw["untraced"]
        return None if untraced is None else untraced["step_ns"]

    @property
    def busy(self) -> float:
        """Share of a typical step, or of the time after start-up, in which the device worked, 0 to 1."""
        return self.raw["busy"]

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """Simulated runs with one cost removed."""
        what_if = self.raw["what_if"]
        return () if what_if is None else tuple(what_if["scenarios"])

    def __repr__(self) -> str:
        return f"<Device {self.id} {self.name}>"


def _rows(raw: Mapping[str, Any], section: str, name: str) -> list[Mapping[str, Any]]:
    """List of an optional section of the report."""
    found: Mapping[str, Any] = raw.get(section) or {}
    return cast("list[Mapping[str, Any]]", found.get(name) or [])


class Report:
    """Report of a run, a session or a capture."""

    def __init__(
            self, raw: Mapping[str, Any], text: Callable[[], str] | None = None,
            check: Callable[[Mapping[str, Any]], None] | None = None) -> None:
        self.raw: Mapping[str, Any] = raw
        """The whole JSON report."""
        typed = cast(ReportJson, raw)
        self._make_text = text
        self._check = check
        self._text: str | None = None
        self.bottleneck = Bottleneck(typed["bottleneck"])
        self.devices: Tuple[Device, ...] = tuple(Device(device) for device in typed["devices"])
        self.completeness: CompletenessJson = typed["completeness"]
        """What was recorded, and what was lost."""
        self.api = Table(cast("list[Mapping[str, Any]]", typed["api"]))

    def _of_devices(self, name: str) -> Table:
        return Table([{"device": device.id, **row} for device in self.devices
                      for row in cast("list[dict[str, Any]]", device.raw.get(name) or [])])

    @property
    def kernels(self) -> Table:
        """Kernels by device, the longest first."""
        return self._of_devices("kernels")

    @property
    def copies(self) -> Table:
        """Copies by device, direction and memory."""
        return self._of_devices("copies")

    @property
    def gaps(self) -> Table:
        """The operations after the longest idle times."""
        return self._of_devices("gaps")

    @property
    def steps(self) -> Table:
        """The most recent steps of each device."""
        return Table([{"device": device.id, **row} for device in self.devices if device.raw["steps"] is not None
                      for row in device.raw["steps"]["rows"]])

    @property
    def lines(self) -> Table:
        """Lines of Python (and of C with native stacks) in which the host kept the device waiting."""
        return Table(_rows(self.raw, "host", "lines"))

    @property
    def ranges(self) -> Table:
        """Ranges that the program named."""
        return Table(_rows(self.raw, "ranges", "rows"))

    @property
    def text(self) -> str:
        """The report as text, as printed at the end of a run."""
        if self._text is None:
            self._text = self._make_text() if self._make_text is not None else ""
        return self._text

    def metrics(self, prefix: str = "gpuwhy/") -> dict[str, float]:
        """Flat numbers for loggers (W&B, MLflow, TensorBoard, `trainer.log`): the step in seconds; the share of the
        bottleneck, the best case, and the busy share, as in the text; the shares of the whole run by leaf; and the
        losses."""
        found: dict[str, float] = {"bottleneck_share": self.bottleneck.share}
        best_case = self.bottleneck.best_case
        if best_case is not None and best_case["speedup"] is not None:
            found["best_case_speedup"] = best_case["speedup"]
        many = len(self.devices) > 1
        for device in self.devices:
            of = f"gpu{device.id}/" if many else ""
            if device.step_ns is not None:
                found[of + "step_seconds"] = device.step_ns / 1e9
            if device.untraced_step_ns is not None:
                found[of + "untraced_step_seconds"] = device.untraced_step_ns / 1e9
            found[of + "busy"] = device.busy
            for leaf, ns in device.leaves.items():
                if ns:
                    found[f"{of}time/{leaf}"] = ns / device.window_ns
        found["kernels"] = float(self.completeness["records"]["kernels"])
        found["lost_records"] = float(self.completeness["dropped_by_cupti"] + self.completeness["dropped_by_gpuwhy"])
        return {prefix + name: value for name, value in found.items()}

    def expect(self, **limits: Any) -> None:
        """Checks the report as `gpuwhy check` does: `expect(launches_at_most=3, no_sync=True)`. Needs the trace.

        Raises AssertionError with the values found.
        """
        if self._check is None:
            raise LookupError("this report has no trace any more; name one, as in profile('run.gpuwhy')")
        self._check(limits)

    def __repr__(self) -> str:
        devices = ", ".join(device.name for device in self.devices)
        return f"<Report {self.bottleneck.cause} {self.bottleneck.share:.0%}; {devices or 'no device'}>"

    def __str__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from .jupyter import report_bundle

        return report_bundle(self)
