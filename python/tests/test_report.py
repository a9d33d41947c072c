"""Reports, tables, comparisons and their types."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import typing

import pytest

import gpuwhy
from conftest import BINARIES, FIXTURES, INSTALLED, environment
from gpuwhy import _schema

if not INSTALLED:

    @pytest.fixture(autouse=True)
    def on_path(monkeypatch):
        monkeypatch.setenv("PATH", environment()["PATH"])


COUNTERS = FIXTURES / "gpt_counters.gpuwhy"


def described(value, type_, place):
    """Yields the mismatches between a JSON value and a type: missing or unknown fields, and other types."""
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if type_ is typing.Any:
        return
    if origin is typing.Union:
        if value is None and type(None) in arguments:
            return
        inner = [argument for argument in arguments if argument is not type(None)]
        yield from described(value, inner[0], place)
    elif origin is list:
        if not isinstance(value, list):
            yield f"{place}: no list: {value!r}"
            return
        for at, item in enumerate(value):
            yield from described(item, arguments[0], f"{place}[{at}]")
    elif origin is dict:
        if not isinstance(value, dict):
            yield f"{place}: no object: {value!r}"
            return
        for name, item in value.items():
            yield from described(item, arguments[1], f"{place}.{name}")
    elif typing.is_typeddict(type_):
        hints = typing.get_type_hints(type_)
        for name in type_.__required_keys__ - value.keys():
            yield f"{place}: {name} is missing"
        for name, item in value.items():
            if name in hints:
                yield from described(item, hints[name], f"{place}.{name}")
            elif not (type_ is _schema.CopyJson and name == "class"):
                yield f"{place}: {name} is not in the type"
    elif type_ is float:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            yield f"{place}: no number: {value!r}"
    elif not isinstance(value, type_):
        yield f"{place}: {value!r} is no {type_.__name__}"


@pytest.mark.skipif(not hasattr(typing, "is_typeddict"), reason="typing.is_typeddict is new in Python 3.10")
@pytest.mark.parametrize("fixture", ["mlp", "sync_item", "copy_pageable", "resnet_workers0", "graph_torch"])
def test_types_fit_the_reports_of_recordings(program, fixture):
    program("""
        import gpuwhy
        with gpuwhy.profile("run.gpuwhy", quiet=True) as p:
            with gpuwhy.range("outer"):
                play()
        """, fixture=fixture)
    report = gpuwhy.open(program.folder / "run.gpuwhy").report
    assert not list(described(report.raw, _schema.ReportJson, "report"))


@pytest.mark.skipif(not hasattr(typing, "is_typeddict"), reason="typing.is_typeddict is new in Python 3.10")
def test_types_fit_a_report_with_counters_and_find_what_does_not():
    raw = json.loads(json.dumps(gpuwhy.open(COUNTERS).report.raw))
    assert not list(described(raw, _schema.ReportJson, "report"))
    raw["bottleneck"]["new"] = 1
    raw["devices"][0]["id"] = "0"
    del raw["completeness"]["end"]
    assert sorted(described(raw, _schema.ReportJson, "report")) == [
        "report.bottleneck: new is not in the type", "report.completeness: end is missing", "report.devices[0].id: '0' is no int"]


def test_a_report_has_typed_figures(trace):
    report = gpuwhy.open(trace).report
    assert report.bottleneck.cause == "launch" and 0.5 < report.bottleneck.share < 0.7
    assert report.bottleneck.plan[0]["action"] == "capture the step in a CUDA graph"
    device = report.devices[0]
    assert device.name == "NVIDIA H200" and device.step_ns == device.raw["steps"]["median_ns"]
    assert report.steps.columns == ("device", "start_unix_ns", "duration_ns", "leaves")
    assert str(report).startswith("gpuwhy: process") and "Bottleneck" in report.text
    metrics = report.metrics("x/")
    assert metrics["x/step_seconds"] == device.step_ns / 1e9 and metrics["x/kernels"] == 54081.0
    assert all(isinstance(value, float) for value in metrics.values())
    assert abs(sum(value for name, value in metrics.items() if name.startswith("x/time/")) - 1) < 1e-9
    # As in the text: kernels and copies of a step, without the overhead of tracing.
    shares = re.findall(r"(?:computing|copying memory) (\d+) %", report.text)
    assert len(shares) == 2 and abs(sum(map(int, shares)) - 100 * metrics["x/busy"]) <= 1, (shares, metrics["x/busy"])
    best = metrics["x/best_case_speedup"]
    assert report.bottleneck.best_case["speedup"] == best
    assert f"Gain: about {best:.1f}x" in report.text


def command():
    from gpuwhy import _find

    return str(_find.command())


def test_tables_and_sql(trace):
    run = gpuwhy.open(trace)
    assert "kernels" in run.tables and "every table" not in run.tables
    assert run.sql("SELECT count(*) AS n FROM kernels")[0] == {"n": 54081}
    with pytest.raises(gpuwhy.CommandFailed, match="no such column|no column"):
        run.sql("SELECT nonsense FROM kernels")
    with pytest.raises(KeyError, match="there are"):
        run.table("nonsense")
    rows = run.sql("SELECT name, duration_ns FROM kernels LIMIT 3")
    assert len(rows) == 3 and rows.columns == ("name", "duration_ns") and len(rows[:2]) == 2
    assert rows.column("duration_ns") == [row["duration_ns"] for row in rows]
    assert "<table>" in rows._repr_html_() and "<script" not in gpuwhy.Table([{"a": "<script>"}])._repr_html_()


@pytest.mark.parametrize("library, name", [("pandas", "to_pandas"), ("polars", "to_polars"), ("pyarrow", "to_arrow")])
def test_tables_for_other_libraries(trace, library, name, tmp_path):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    run = gpuwhy.open(trace)
    kernels = run.report.kernels
    frame = getattr(kernels, name)()
    assert frame.shape[0] == len(kernels) and "geometry.waves" in list(getattr(frame, "column_names", frame.columns))
    file = run.table("copies").to_parquet(tmp_path / "copies.parquet")
    assert file.read_bytes()[:4] == b"PAR1"


def test_comparisons_pages_and_exports(trace, tmp_path):
    difference = gpuwhy.diff(trace, gpuwhy.open(trace))
    assert difference.refused is None and difference.devices[0]["outcome"] == "unchanged"
    assert "has not changed" in str(difference)
    assert gpuwhy.diff(trace, COUNTERS).refused
    page = gpuwhy.open(trace).html(tmp_path / "page.html")
    assert page.read_text().lstrip().lower().startswith("<!doctype html>")
    with pytest.raises(gpuwhy.CommandFailed, match="page.html"):
        gpuwhy.open(trace).html(page)
    gpuwhy.open(trace).export("json", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text().splitlines()[0])
    ranks = gpuwhy.runs(trace.parent)
    assert ranks.sql("SELECT count(*) AS n FROM kernels")[0]["n"] == 54081


def test_what_cannot_be_read_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such trace"):
        gpuwhy.open(tmp_path / "none.gpuwhy")
    with pytest.raises(NotADirectoryError, match="no folder"):
        gpuwhy.runs(tmp_path / "none")
    (tmp_path / "text.gpuwhy").write_text("no trace")
    with pytest.raises(gpuwhy.CommandFailed, match="text.gpuwhy") as caught:
        _ = gpuwhy.open(tmp_path / "text.gpuwhy").report
    assert caught.value.code == 2


def test_expectations_are_judged_by_the_command(trace, tmp_path):
    report = gpuwhy.open(trace).report
    report.expect(kernels_at_most=54081, bottleneck="launch", share_at_most={"launch": 0.7}, step_at_most=0.1)
    with pytest.raises(AssertionError, match="54081 kernels, at most 7 expected") as caught:
        # The MLP allocates before its steps only.
        report.expect(kernels_at_most=7, no_allocation=True, bottleneck=["copy", "sync"])
    assert len(str(caught.value).splitlines()) == 3
    with pytest.raises(TypeError, match="there is no limit 'nonsense'; there are"):
        report.expect(nonsense=1)
    report.expect(no_spills=True)
    with pytest.raises(AssertionError, match="no data on its use of the device memory"):
        report.expect(kernel_uses=("elementwise", "dram", 0.8))
    baseline = tmp_path / "perf.json"
    with pytest.raises(AssertionError, match="nothing about"):
        report.expect(step_within=1.05, baseline=baseline)
    report.expect(step_within=1.05, baseline=baseline, bless=True)
    report.expect(step_within=1.05, baseline=baseline)
    stored = json.loads(baseline.read_text())
    assert stored["kernels"][0]["kernel"] == "step" and stored["kernels"][0]["median_ns"] == report.devices[0].step_ns
    stored["kernels"][0]["median_ns"] = 1
    baseline.write_text(json.dumps(stored))
    with pytest.raises(AssertionError, match="median step"):
        report.expect(step_within=1.05, baseline=baseline)


def test_the_environment_of_a_launcher(tmp_path):
    variables = gpuwhy.environment("run/rank%q{RANK}.gpuwhy", mode="full")
    assert pathlib.Path(variables["CUDA_INJECTION64_PATH"]).is_file()
    assert "NCCL_PROFILER_PLUGIN" not in variables
    assert variables["GPUWHY_OUTPUT"].endswith("/run/rank%q{RANK}.gpuwhy") and variables["GPUWHY_MODE"] == "full"
    assert pathlib.Path(variables["GPUWHY_OUTPUT"]).is_absolute()


def test_versions_are_those_of_the_project():
    root = pathlib.Path(__file__).resolve().parents[2]
    version = f'version = "{gpuwhy.__version__}"'
    assert version in (root / "Cargo.toml").read_text() and version in (root / "pyproject.toml").read_text()
    assert BINARIES.is_dir()


def test_limits_are_the_options_of_check():
    import gpuwhy._check as check

    assert check.options({"no_spills": True, "no_sync": False}) == ["--no-spills"]
    assert check.options({"kernel_uses": ("softmax", "dram", 0.8)}) == ["--kernel-uses", "softmax=dram:80"]
    assert check.options({"kernel_uses": [("a=b", "l2", 0.125), ("c", "issue", 1)]}) == [
        "--kernel-uses", "a=b=l2:12.5", "--kernel-uses", "c=issue:100"]
    assert check.options({"kernel_at_most": {"softmax": 40e-6}}) == ["--kernel-at-most", "softmax=40000.000ns"]
    assert check.options({"module_at_most": ("Attention", 2e-3), "module_within": {"Mlp": 1.05}}) == [
        "--module-at-most", "Attention=2000000.000ns", "--module-within", "Mlp=1.05"]
    # The command knows each of them.
    said = subprocess.run([command(), "check", "--help"], capture_output=True, text=True, env=environment(), check=True).stdout
    missing = [limit for limit in check.LIMITS if f"--{limit.replace('_', '-')}" not in said]
    assert missing == []


def test_a_trace_whose_name_begins_with_a_dash_is_no_option(trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(trace, "-x.gpuwhy")
    opened = gpuwhy.open("-x.gpuwhy")
    assert opened.report.bottleneck.cause == "launch" and opened.report.text
    assert opened.sql("SELECT count(*) AS n FROM kernels")[0]["n"] > 0
    assert gpuwhy.diff("-x.gpuwhy", "-x.gpuwhy").devices[0]["outcome"] == "unchanged"
    opened.html("-page.html")
    opened.export("json", "-x.json")
    assert pathlib.Path("-page.html").is_file() and pathlib.Path("-x.json").is_file()
