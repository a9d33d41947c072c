"""pytest plugin: tests with limits for a measured region.

    @pytest.mark.gpu_expect(launches_at_most=3, no_sync=True)
    def test_attention(gpu_profile):
        with gpu_profile:
            model(x)

    def test_gemm(gpu_bench):
        assert gpu_bench(lambda: gemm(a, b)).median_us < 120

Only tests that use the fixtures are measured. `--gpuwhy-dir` keeps the traces, `--gpuwhy-bless` updates baselines,
`--gpuwhy-required` fails where measuring is impossible, instead of skipping.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator

import pytest

if TYPE_CHECKING:
    from ._report import Report
    from ._session import Profile

_seen: list[tuple[str, str]] = []
# The range around each call of gpu_bench.
_CALL = "gpu_bench"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpuwhy", "measuring GPU work")
    group.addoption("--gpuwhy-dir", metavar="DIR", help="keep the traces of tests that use gpu_profile here")
    group.addoption("--gpuwhy-bless", action="store_true", help="store medians in baselines instead of judging by them")
    group.addoption("--gpuwhy-required", action="store_true", help="fail where nothing can be measured, instead of skipping")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu_expect(**limits): what the region measured by gpu_profile may do, such as "
                            "launches_at_most=3, no_sync=True, kernel_within=('softmax', 1.05), baseline='perf.json'")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Starts measuring before the first test uses CUDA, if any test needs it."""
    if session.config.getoption("collectonly") or not any("gpu_profile" in getattr(item, "fixturenames", ()) for item in session.items):
        return
    from ._errors import NotFound, NotMeasured, VersionMismatch
    from ._session import prepare

    try:
        prepare()
    except (NotMeasured, NotFound, VersionMismatch):
        pass  # The tests that use the fixtures are skipped or fail, with the reason.


class GpuProfile:
    """A region of a test: a context manager that measures, and checks the limits of the test when it ends."""

    def __init__(self, path: Path, limits: dict[str, Any], required: bool) -> None:
        self.path = path
        self.limits = limits
        self._required = required
        self._profile: Profile | None = None
        self.was_used = False

    @property
    def report(self) -> Report:
        """The report, after the region."""
        if self._profile is None:
            raise LookupError("nothing was measured: use `with gpu_profile:` in the test")
        return self._profile.report

    def __enter__(self) -> GpuProfile:
        from ._errors import NotFound, NotMeasured
        from ._session import prepare, profile

        self.was_used = True
        made = profile(self.path, quiet=True, history=False)
        try:
            prepare()
            self._profile = made.start()
        except (NotMeasured, NotFound) as error:
            _cannot(str(error), self._required)
        if made.unmeasured is not None:
            made.stop()
            _cannot(made.unmeasured, self._required)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._profile is None:
            return
        self._profile.stop()
        if error is None:
            self._judge()

    def _judge(self) -> None:
        assert self._profile is not None
        from ._check import judge

        if self.limits:
            __tracebackhide__ = True
            assert self._profile.trace is not None
            try:
                judge(self._profile.trace, self.limits)
            except AssertionError as error:
                raise pytest.fail.Exception(f"the measured region is not as expected:\n{error}", pytrace=False) from None


def _cannot(why: str, required: bool) -> None:
    if required:
        pytest.fail(f"nothing can be measured: {why}", pytrace=False)
    pytest.skip(f"nothing can be measured: {why}")


@pytest.fixture
def gpu_profile(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GpuProfile]:
    """Measures a region of the test: `with gpu_profile:`. The limits of `gpu_expect` are checked when it ends."""
    config = request.config
    limits: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers("gpu_expect"))):
        if mark.args:
            raise pytest.UsageError(f"gpu_expect takes limits by name, as in gpu_expect(no_sync=True); got {mark.args!r}")
        limits.update(mark.kwargs)
    from ._check import options

    try:
        options(limits)
    except TypeError as error:
        raise pytest.UsageError(f"gpu_expect: {error}") from error
    if limits.get("baseline"):
        limits.setdefault("case", None)
        if config.getoption("--gpuwhy-bless"):
            limits["bless"] = True
    folder = config.getoption("--gpuwhy-dir")
    name = re.sub(r"[^\w.-]+", "_", request.node.nodeid).strip("_")
    place = Path(folder) if folder else tmp_path
    region = GpuProfile(place / f"{name}.gpuwhy", limits, bool(config.getoption("--gpuwhy-required")))
    yield region
    if not region.was_used and limits:
        pytest.fail("gpu_expect has limits, and the test has measured nothing: use `with gpu_profile:`", pytrace=False)
    if region.was_used and folder:
        _seen.append((request.node.nodeid, str(region.path)))


@dataclass(frozen=True)
class BenchResult:
    """Device times of one call, from the records of its kernels and copies."""

    calls: int
    median_us: float
    """From the begin of the first operation of a call to the end of its last, microseconds."""
    min_us: float
    max_us: float
    report: Report


def _bench_result(report: Report, calls: int) -> BenchResult:
    """Result from the ranges of the calls."""
    times = next((row["projected"] for row in report.ranges if row["message"] == _CALL), None)
    if times is None or times["count"] == 0:
        pytest.fail("the calls launched nothing on a device from the thread of the test", pytrace=False)
    if times["count"] < calls:
        pytest.fail(f"of {calls} calls only {times['count']} have device work in the trace: some launched nothing, or the device "
                    "was more than 2 s behind; then measure fewer calls", pytrace=False)
    return BenchResult(calls, times["median_ns"] / 1e3, times["min_ns"] / 1e3, times["max_ns"] / 1e3, report)


@pytest.fixture
def gpu_bench(gpu_profile: GpuProfile) -> Callable[..., BenchResult]:
    """Measures the device time of a call: `gpu_bench(lambda: gemm(a, b), calls=50)`."""

    def bench(call: Callable[[], object], *, calls: int = 50, warmup: int = 5) -> BenchResult:
        from ._ranges import range as named

        for _ in range(warmup):
            call()
        with gpu_profile:
            for _ in range(calls):
                with named(_CALL):
                    call()
        return _bench_result(gpu_profile.report, calls)

    return bench


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _seen:
        terminalreporter.section("gpuwhy")
        for name, path in _seen:
            terminalreporter.write_line(f"{name}: {path}")
