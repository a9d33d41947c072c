"""Tests of the build backend and the wheel checks, with small programs in place of ours."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib
import io
import pathlib
import shutil
import sys
import tarfile
import zipfile

import pytest

from conftest import INSTALLED, ROOT

pytestmark = pytest.mark.skipif(INSTALLED or sys.version_info < (3, 11), reason="of the sources; tomllib is new in Python 3.11")


@pytest.fixture
def backend(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "python" / "build_backend"))
    monkeypatch.syspath_prepend(str(ROOT / "python"))
    binaries = tmp_path / "binaries"
    binaries.mkdir()
    backend = importlib.import_module("gpuwhy_build")
    for name in (backend.COMMAND, backend.LIBRARY, *backend.DEMO):
        shutil.copy("/bin/true", binaries / name)
    monkeypatch.setenv("GPUWHY_WHEEL_BINARIES", str(binaries))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    return backend


def test_a_wheel_is_complete_and_the_same_each_time(backend, monkeypatch, tmp_path):
    (tmp_path / "bill.json").write_text('{"bomFormat": "CycloneDX"}')
    monkeypatch.setenv("GPUWHY_WHEEL_SBOM", str(tmp_path / "bill.json"))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    wheel = tmp_path / "a" / backend.build_wheel(str(tmp_path / "a"))
    again = tmp_path / "b" / backend.build_wheel(str(tmp_path / "b"))
    assert wheel.name == again.name and wheel.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        rows = list(csv.reader(io.StringIO(archive.read("gpuwhy-0.2.0.dist-info/RECORD").decode())))
        for name, digest, size in rows[:-1]:
            data = archive.read(name)
            wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={wanted}", str(len(data))), name
        assert {row[0] for row in rows} == names
        assert archive.getinfo("gpuwhy-0.2.0.data/scripts/gpuwhy").external_attr >> 16 == 0o100755
        metadata = archive.read("gpuwhy-0.2.0.dist-info/METADATA").decode()
        points = archive.read("gpuwhy-0.2.0.dist-info/entry_points.txt").decode()
        tags = [line for line in archive.read("gpuwhy-0.2.0.dist-info/WHEEL").decode().splitlines() if line.startswith("Tag: ")]
    sources = {f"gpuwhy/{path.name}" for path in (ROOT / "python" / "gpuwhy").glob("*.py")}
    demo = {f"gpuwhy/_lib/{name}" for name in (*backend.DEMO, *(f"recordings/{name}" for name in backend.recordings()))}
    others = {"gpuwhy/SKILL.md", "gpuwhy/py.typed", "gpuwhy/_lib/libprof.so", "gpuwhy-0.2.0.dist-info/sboms/gpuwhy.cdx.json"}
    assert sources | demo | others <= names and not any("__pycache__" in name for name in names)
    assert "Requires-Python: >=3.9" in metadata and "Requires-Dist: pandas; extra ==" in metadata and "# gpuwhy" in metadata
    assert points == "[pytest11]\ngpuwhy = gpuwhy.pytest_plugin\n"
    assert [f"Tag: py3-none-{tag}" for tag in wheel.stem.split("-")[-1].split(".")] == tags
    assert importlib.import_module("wheel").problems(wheel, 1_000_000) == []
    assert importlib.import_module("wheel").problems(wheel, 1000) == [
        f"{wheel.stat().st_size / 1e6:.1f} MB, at most 0.0 MB are allowed"]


def test_the_tag_is_that_of_the_newest_symbol(backend):
    elf = b"\x7fELF\x02\x01" + bytes(12) + (62).to_bytes(2, "little")
    assert backend.tags([elf + b"\0GLIBC_2.2.5\0GLIBC_2.17\0", elf]) == ["manylinux_2_17_x86_64", "manylinux2014_x86_64"]
    assert backend.tags([elf + b"\0GLIBC_2.4\0GLIBC_2.30\0", elf]) == ["manylinux_2_30_x86_64"]
    arm = elf[:18] + (183).to_bytes(2, "little")
    assert backend.tags([arm, arm])[0] == "manylinux_2_17_aarch64"
    with pytest.raises(SystemExit, match="several machines"):
        backend.tags([arm, elf])
    with pytest.raises(SystemExit, match="no 64-bit ELF"):
        backend.tags([b"text", elf])


def test_a_wheel_with_a_foreign_library_or_a_path_is_refused(backend, tmp_path):
    check = importlib.import_module("wheel")
    python = next((path for path in map(pathlib.Path, ("/usr/bin/python3", "/bin/bash")) if check.needed_libraries(path.read_bytes())), None)
    if python is None or not set(check.needed_libraries(python.read_bytes())) - backend.SYSTEM_LIBRARIES:
        pytest.skip("there is no program here that links other libraries")
    shutil.copy(python, tmp_path / "binaries" / "gpuwhy")
    (tmp_path / "binaries" / "libprof.so").write_bytes(pathlib.Path("/bin/true").read_bytes() + f"{ROOT}/src/a.rs".encode())
    wheel = tmp_path / backend.write_wheel(tmp_path, tmp_path / "binaries" / "gpuwhy", tmp_path / "binaries" / "libprof.so")
    said = check.problems(wheel, 100_000_000)
    assert any(" needs lib" in text for text in said) and any(f"holds the path {ROOT}/" in text for text in said), said


def test_the_source_distribution_has_what_a_build_needs(backend, tmp_path):
    packed = tmp_path / backend.build_sdist(str(tmp_path))
    with tarfile.open(packed) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    for name in ("PKG-INFO", "pyproject.toml", "Cargo.toml", "Cargo.lock", "python/build_backend/gpuwhy_build.py",
                 "python/gpuwhy/py.typed", "inject/src/lib.rs", "page/assets/page.js", "testing/cupti-replay/Cargo.toml"):
        assert name in names, name
    recordings = {f"testing/fixtures/{name}" for name in backend.recordings()}
    assert recordings <= names and not any(name.endswith(".zst") for name in names - recordings)
    assert not any(name.endswith(".pyc") or name.startswith("target/") for name in names)
    assert packed.stat().st_size < 5_000_000


def test_the_bill_of_materials_of_a_release_has_each_crate_once(backend):
    def bill(name, *parts):
        rows = [{"ref": of, "dependsOn": []} for of in (name, *parts)]
        return {"metadata": {"component": {"bom-ref": name}}, "components": [{"bom-ref": part} for part in parts], "dependencies": rows}

    bills = [bill("command", "library", "zstd"), bill("library", "zstd"), bill("demo", "zstd", "libc")]
    whole = importlib.import_module("sbom").joined(bills)
    assert whole["metadata"]["component"]["bom-ref"] == "command"
    assert [part["bom-ref"] for part in whole["components"]] == ["library", "zstd", "demo", "libc"]
    assert [row["ref"] for row in whole["dependencies"]] == ["command", "library", "zstd", "demo", "libc"]


def test_files_for_another_machine_are_laid_out_as_pip_does_there(backend, tmp_path):
    check = importlib.import_module("wheel")
    built = tmp_path / backend.build_wheel(str(tmp_path))
    arm = built.with_name("gpuwhy-0.2.0-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.whl")
    shutil.copy(built, arm)
    assert check.machine_of(arm) == "aarch64" and check.machine_of(built) in built.name
    check.unpacked(arm, tmp_path / "there")
    assert (tmp_path / "there" / "bin" / "gpuwhy").stat().st_mode & 0o111
    assert (tmp_path / "there" / "lib" / "python3" / "site-packages" / "gpuwhy" / "_lib" / "libprof.so").is_file()
