"""Builds the wheel and the source distribution (PEP 517), with only cargo and the standard library.

A wheel is an archive with two files that cargo builds and with the module. maturin builds either a command or a library
into a wheel, not both, so it would still need this backend; this file is the complete build.

    GPUWHY_WHEEL_TARGET    a Rust target with a glibc version, such as x86_64-unknown-linux-gnu.2.17: built by
                           cargo-zigbuild, and compressed by zopfli, which makes the wheel 3 % smaller; without it
                           cargo builds for this machine
    GPUWHY_WHEEL_BINARIES  a folder with `gpuwhy`, `libprof.so` and, for the demo, DEMO to use without a build
    GPUWHY_WHEEL_SBOM      a software bill of materials to put into the wheel (PEP 770)
    SOURCE_DATE_EPOCH      the time of the files in the archive [default: 1980]

The tag of the wheel has the glibc version that the two files need, according to their symbols.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND, LIBRARY = "gpuwhy", "libprof.so"
# Files of `gpuwhy demo`, next to the library: programs, and in a folder two small recordings with different bottlenecks.
# All of them would be half as large as the rest.
DEMO = ("gpuwhy-replay-host", "libcupti_replay.so")
RECORDINGS = ("resnet_workers0", "copy_pageable")
# Installers know no tags for older glibc versions.
OLDEST_GLIBC = (2, 17)
MACHINES = {62: "x86_64", 183: "aarch64"}
# Libraries that may be linked: the C library and its parts (PEP 600).
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "libutil.so.1",
                    "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
# Large files that only tests and documents need; excluded from the source distribution.
LEFT_OUT = re.compile(r"testing/fixtures/.*\.(zst|gpuwhy|gz)$|testing/fuzz/|benchmark/|\.github/|docs/.*\.(png|svg)$|benches/gpu/")


def project() -> dict:
    try:
        import tomllib
    except ImportError:
        import tomli as tomllib
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    folder = os.environ.get("GPUWHY_WHEEL_BINARIES")
    with tempfile.TemporaryDirectory() as scratch:
        found = pathlib.Path(folder) if folder else build()
        files = [prepared(found, name, pathlib.Path(scratch)) for name in (COMMAND, LIBRARY, *demo(found))]
        return write_wheel(pathlib.Path(wheel_directory), *files)


def build_sdist(sdist_directory, config_settings=None):
    about = project()["project"]
    base = f"{about['name']}-{about['version']}"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        def add(name, data, mode=0o644):
            info = tarfile.TarInfo(f"{base}/{name}")
            info.size, info.mode, info.mtime = len(data), mode, epoch()
            archive.addfile(info, io.BytesIO(data))

        add("PKG-INFO", metadata(about))
        for name in source_files():
            path = ROOT / name
            add(name, path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)
    target = pathlib.Path(sdist_directory) / f"{base}.tar.gz"
    with open(target, "wb") as file, gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=epoch()) as packed:
        packed.write(buffer.getvalue())
    return target.name


def source_files() -> list[str]:
    """Source files: those that git tracks, or all files of an unpacked source distribution."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, text=True, check=False) if (ROOT / ".git").exists() else None
    if listed is not None and listed.returncode == 0:
        names = [name for name in listed.stdout.split("\0") if name]
    else:
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
        names = [name for name in names if name.split("/")[0] not in ("target", ".git", "PKG-INFO")]
    names = [name for name in names if not LEFT_OUT.search(name)] + [f"testing/fixtures/{name}" for name in recordings()]
    keep = [name for name in set(names) if (ROOT / name).is_file() and "__pycache__" not in name]
    return sorted(keep)


def demo(folder: pathlib.Path) -> tuple[str, ...]:
    """Names of the programs of the demo; none if the folder lacks them, as one with only what a test needs."""
    return DEMO if all(place(folder, name) for name in DEMO) else ()


def recordings() -> list[str]:
    """Names of the files in `testing/fixtures` that packages contain, for the demo."""
    return [*(f"{name}.cupti.zst" for name in RECORDINGS), "index.txt"]


# Packages that only the command uses, outside of its inner loops.
FOR_SIZE = ("cupti-replay", "gpuwhy", "gpuwhy-compare", "gpuwhy-export", "gpuwhy-import", "gpuwhy-page", "clap_builder", "cpp_demangle",
            "indicatif", "libsqlite3-sys", "parquet", "ratatui-core", "ratatui-widgets")


def build(*packages: str) -> pathlib.Path:
    """Builds the files of a wheel, and those of further packages; returns their folder."""
    target = os.environ.get("GPUWHY_WHEEL_TARGET")
    environment = {**os.environ, "CARGO_INCREMENTAL": "0"}
    if target:
        # Panic messages name source files; keep the folders of the build machine out of them.
        homes = {str(pathlib.Path.home()): "/home", str(ROOT): "/gpuwhy"}
        flags = [f"--remap-path-prefix={path}={name}" for path, name in homes.items()]
        environment["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join([*environment.get("RUSTFLAGS", "").split(), *flags])
        maps = " ".join(f"-ffile-prefix-map={path}={name}" for path, name in homes.items())
        environment["CFLAGS"] = f"{environment.get('CFLAGS', '')} {maps}".strip()
    cargo = ["cargo", "zigbuild", "--target", target] if target else ["cargo", "build"]
    # Keep downloads small: no debug symbols, and optimize code for size where the command waits for the user.
    small = ['profile.release.strip="symbols"', "profile.release.codegen-units=1",
             *(f'profile.release.package.{name}.opt-level="s"' for name in FOR_SIZE)]
    options = [word for setting in small for word in ("--config", setting)]
    names = ("gpuwhy", "gpuwhy-inject", "cupti-replay", *packages)
    line = [*cargo, "--release", "--locked", *options, *(word for name in names for word in ("-p", name))]
    print(" ".join(line), file=sys.stderr, flush=True)
    subprocess.run(line, cwd=ROOT, env=environment, check=True)
    base = pathlib.Path(environment.get("CARGO_TARGET_DIR", ROOT / "target"))
    # The glibc version is not part of Rust's target name.
    return base / re.sub(r"\.\d+\.\d+$", "", target) / "release" if target else base / "release"


def place(folder: pathlib.Path, name: str) -> pathlib.Path | None:
    """Where cargo has put a file."""
    # It links libraries of dependencies one level up only if their package was requested: the one above may be older.
    return next((path for path in (folder / "deps" / name, folder / name) if path.is_file()), None)


def prepared(folder: pathlib.Path, name: str, scratch: pathlib.Path) -> pathlib.Path:
    """The file without debug symbols."""
    source = place(folder, name)
    if source is None:
        raise SystemExit(f"{folder / name} does not exist: build it with cargo build --release -p gpuwhy -p gpuwhy-inject")
    copy = scratch / name
    shutil.copyfile(source, copy)
    strip = shutil.which("strip")
    if strip and machine(copy.read_bytes()) == os.uname().machine:
        subprocess.run([strip, str(copy)], check=True)
    return copy


def machine(data: bytes) -> str:
    if data[:6] != b"\x7fELF\x02\x01":
        raise SystemExit("a file of the wheel is no 64-bit ELF file")
    number = int.from_bytes(data[18:20], "little")
    return MACHINES.get(number) or sys.exit(f"a file of the wheel is for an unknown machine ({number})")


def glibc(data: bytes) -> tuple[int, int]:
    """The newest glibc version among the symbols that a file imports."""
    versions = [(int(major), int(minor)) for major, minor in re.findall(rb"\0GLIBC_(\d+)\.(\d+)", data)]
    return max(versions, default=OLDEST_GLIBC)


def tags(files: list[bytes]) -> list[str]:
    machines = {machine(data) for data in files}
    if len(machines) != 1:
        raise SystemExit(f"the files of the wheel are for several machines: {', '.join(sorted(machines))}")
    newest = max(OLDEST_GLIBC, *(glibc(data) for data in files))
    found = [f"manylinux_{newest[0]}_{newest[1]}_{machines.copy().pop()}"]
    # The older name of the same tag.
    return found + [f"manylinux2014_{machines.pop()}"] if newest == OLDEST_GLIBC else found


def write_wheel(folder: pathlib.Path, command: pathlib.Path, *libraries: pathlib.Path) -> str:
    about = project()["project"]
    base = f"{about['name']}-{about['version']}"
    platforms = tags([command.read_bytes(), *(library.read_bytes() for library in libraries)])
    entries: dict[str, tuple[bytes, int]] = {}
    module = ROOT / "python" / "gpuwhy"
    for path in sorted(module.rglob("*")):
        if path.is_file() and path.suffix in (".py", ".typed") or path.name == "py.typed":
            entries[f"gpuwhy/{path.relative_to(module)}"] = (path.read_bytes(), 0o644)
    entries["gpuwhy/SKILL.md"] = ((ROOT / "cli" / "mcp" / "SKILL.md").read_bytes(), 0o644)
    for library in libraries:
        entries[f"gpuwhy/_lib/{library.name}"] = (library.read_bytes(), 0o755)
    for name in recordings() if len(libraries) > 1 else ():
        entries[f"gpuwhy/_lib/recordings/{name}"] = ((ROOT / "testing" / "fixtures" / name).read_bytes(), 0o644)
    entries[f"{base}.data/scripts/{COMMAND}"] = (command.read_bytes(), 0o755)
    info = f"{base}.dist-info"
    entries[f"{info}/METADATA"] = (metadata(about), 0o644)
    lines = ["Wheel-Version: 1.0", "Generator: gpuwhy_build", "Root-Is-Purelib: false"]
    lines += [f"Tag: py3-none-{platform}" for platform in platforms]
    entries[f"{info}/WHEEL"] = (("\n".join(lines) + "\n").encode(), 0o644)
    points = "".join(f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in members.items())
                     for group, members in about.get("entry-points", {}).items())
    entries[f"{info}/entry_points.txt"] = (points.encode(), 0o644)
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        entries[f"{info}/licenses/{name}"] = ((ROOT / name).read_bytes(), 0o644)
    if sbom := os.environ.get("GPUWHY_WHEEL_SBOM"):
        entries[f"{info}/sboms/gpuwhy.cdx.json"] = (pathlib.Path(sbom).read_bytes(), 0o644)
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, (data, _) in entries.items())
    entries[f"{info}/RECORD"] = ((record + f"{info}/RECORD,,\n").encode(), 0o644)
    target = folder / f"{base}-py3-none-{'.'.join(platforms)}.whl"
    stamp = max(time.gmtime(epoch())[:6], (1980, 1, 1, 0, 0, 0))
    with zopfli() if os.environ.get("GPUWHY_WHEEL_TARGET") else contextlib.nullcontext(), \
            zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (data, mode) in entries.items():
            item = zipfile.ZipInfo(name, stamp)
            item.external_attr, item.compress_type, item.create_system = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED, 3
            archive.writestr(item, data)
    return target.name


@contextlib.contextmanager
def zopfli():
    """Until it ends, zopfli compresses what zipfile deflates. There is no public way to choose another compressor."""
    original = zipfile._get_compressor
    zipfile._get_compressor = lambda kind, *level: Zopfli() if kind == zipfile.ZIP_DEFLATED else original(kind, *level)
    try:
        yield
    finally:
        zipfile._get_compressor = original


class Zopfli:
    """A compressor of zlib, by zopfli: its one result is what is between header and checksum of zlib's format."""

    def __init__(self):
        import zopfli.zlib

        self.data, self.packed = b"", zopfli.zlib.compress

    def compress(self, data: bytes) -> bytes:
        self.data += data
        return b""

    def flush(self) -> bytes:
        return self.packed(self.data, numiterations=1)[2:-4]


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def epoch() -> int:
    return int(os.environ.get("SOURCE_DATE_EPOCH", 315532800))


def metadata(about: dict) -> bytes:
    lines = [
        "Metadata-Version: 2.4", f"Name: {about['name']}", f"Version: {about['version']}", f"Summary: {about['description']}",
        f"Keywords: {','.join(about['keywords'])}", f"License-Expression: {about['license']}",
        "License-File: LICENSE-APACHE", "License-File: LICENSE-MIT", f"Requires-Python: {about['requires-python']}",
        *(f"Project-URL: {name}, {url}" for name, url in about["urls"].items()),
        *(f"Classifier: {name}" for name in about["classifiers"]),
    ]
    for extra, needs in about["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {need}; extra == "{extra}"' for need in needs)]
    lines += ["Description-Content-Type: text/markdown", "", (ROOT / about["readme"]).read_text()]
    return "\n".join(lines).encode()
