"""The libcupti that PyTorch installs, on a machine without a driver: CUPTI 13.2 crashes in its first call there.

SKIPPED where a driver is, or where the packages cannot be fetched from PyPI.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys

import pytest

from conftest import ROOT

from test_plugins import run_tests

spec = importlib.util.spec_from_file_location("fetch", ROOT / "testing" / "layout-check" / "fetch.py")
assert spec is not None and spec.loader is not None
fetch = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fetch)


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.fixture(params=fetch.CUPTI, ids=lambda package: f"{package[0]}-{package[1]}")
def without_driver(request) -> dict[str, str]:
    """Environment with a released libcupti."""
    if has_driver():
        pytest.skip("SKIPPED: there is a driver")
    try:
        return {"GPUWHY_CUPTI_PATH": str(fetch.fetch(*request.param))}
    except fetch.Unavailable as error:
        pytest.skip(f"SKIPPED: {error}")


def test_every_way_to_measure_says_that_there_is_no_driver(program, without_driver):
    done = program("""
        import gpuwhy, warnings
        for work in (gpuwhy.prepare, gpuwhy.profile("strict.gpuwhy", strict=True).start):
            try:
                work()
            except gpuwhy.NotMeasured as error:
                assert error.reason == "no_cupti" and "libcuda.so.1" in str(error), error
            else:
                raise AssertionError("measured without a driver")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with gpuwhy.profile("empty.gpuwhy") as p:
                ran = True
            assert [w.category for w in caught] == [gpuwhy.NothingMeasured] and "libcuda.so.1" in str(caught[0].message), caught
        assert ran and "libcuda.so.1" in p.unmeasured and p.state is None
        # As the driver does it.
        library = ctypes.CDLL(gpuwhy.environment()["CUDA_INJECTION64_PATH"])
        assert library.InitializeInjection() == 1
        print(p.report.bottleneck.cause)
        """, **without_driver)
    assert done.stdout == "cannot_tell\n", done
    assert "Nothing was measured: no NVIDIA driver" in done.stderr, done
    assert sorted(path.name for path in program.folder.glob("*.gpuwhy")) == ["empty.gpuwhy"]


def test_tests_are_skipped_and_a_program_runs(program, without_driver):
    assert "2 skipped" in run_tests(program, "-k", "test_right or test_wrong", code=0, **without_driver)
    (program.folder / "program.py").write_text(
        "import ctypes, os\nctypes.CDLL(os.environ['CUDA_INJECTION64_PATH']).InitializeInjection()\nprint('ran')\n")
    done = program.run([sys.executable, "-m", "gpuwhy", "program.py"], **without_driver)
    assert done.stdout == "ran\n" and "nothing is measured in this process: no NVIDIA driver" in done.stderr, done
    said = json.loads(program.run(["gpuwhy", "doctor", "--json", "--cupti-path", without_driver["GPUWHY_CUPTI_PATH"]], code=1).stdout)
    cupti = [check["finding"] for check in said["checks"] if check["name"] == "libcupti"]
    assert any("needs the NVIDIA driver" in finding for finding in cupti), cupti
