#!/usr/bin/env python3
"""Builds the wheel for systems with an old glibc, and checks it.

    python3 python/wheel.py                              dist/gpuwhy-...-manylinux_2_17_x86_64.whl
    python3 python/wheel.py --machine aarch64            the same for Arm; the test runs it under qemu-user
    python3 python/wheel.py --binaries target/release    from existing files; the tag has the glibc that they need
    python3 python/wheel.py --test                       also installs it into a fresh environment and runs it

zig, cargo-zigbuild, zopfli and auditwheel come from PyPI, into target/wheel-tools. With --binaries, nothing is compressed
by zopfli, and auditwheel is SKIPPED if it cannot be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python" / "build_backend"))
# Maximum size of a wheel: PyPI accepts 100 MB, but slow connections need less.
MOST_BYTES = 10_000_000
AUDIT = ["auditwheel==6.8.2", "tomli"]
BUILD = ["cargo-zigbuild==0.24.0", "ziglang==0.17.1", "zopfli==0.4.3", *AUDIT]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", metavar="DIR", help="folder of the wheel [dist]")
    parser.add_argument("--glibc", default="2.17", metavar="VERSION", help="oldest glibc [2.17]")
    parser.add_argument("--machine", default="x86_64", choices=["x86_64", "aarch64"])
    parser.add_argument("--binaries", type=pathlib.Path, metavar="DIR", help="take the programs from here")
    parser.add_argument("--sbom", type=pathlib.Path, metavar="FILE", help="put this bill of materials into it (python/sbom.py)")
    parser.add_argument("--any-size", action="store_true", help="allow more than 10 MB, as of builds for debugging")
    parser.add_argument("--sdist", action="store_true", help="write the source distribution too")
    parser.add_argument("--test", action="store_true", help="install what was built, and run it")
    options = parser.parse_args()
    tools = ROOT / "target" / "wheel-tools"
    python, is_audited = sys.executable, True
    try:
        python = installed(tools, AUDIT if options.binaries else BUILD)
    except subprocess.CalledProcessError:
        if not options.binaries:
            raise
        is_audited = False
        print("SKIPPED: auditwheel cannot be installed from PyPI")
    environment = {**os.environ, "PATH": f"{tools / 'bin'}:{os.environ['PATH']}"}
    if options.binaries:
        environment["GPUWHY_WHEEL_BINARIES"] = str(options.binaries.resolve())
    else:
        environment["GPUWHY_WHEEL_TARGET"] = f"{options.machine}-unknown-linux-gnu.{options.glibc}"
    if options.sbom:
        environment["GPUWHY_WHEEL_SBOM"] = str(options.sbom.resolve())
    options.out.mkdir(parents=True, exist_ok=True)
    call = "import sys, gpuwhy_build; print(getattr(gpuwhy_build, sys.argv[1])(sys.argv[2]))"
    environment["PYTHONPATH"] = str(ROOT / "python" / "build_backend")

    def made(what: str) -> pathlib.Path:
        said = subprocess.run([python, "-c", call, what, str(options.out)], env=environment, stdout=subprocess.PIPE, text=True,
                              check=True).stdout
        return options.out / said.split()[-1]

    if options.sdist:
        print(made("build_sdist"))
    wheel = made("build_wheel")
    found = problems(wheel, None if options.any_size else MOST_BYTES)
    # auditwheel knows the policies of all tags, but only for the machine that it runs on.
    if is_audited and machine_of(wheel) == os.uname().machine:
        found += audited(tools / "bin" / "auditwheel", wheel)
    for problem in found:
        print(f"{wheel.name}: {problem}", file=sys.stderr)
    print(f"{wheel} {wheel.stat().st_size / 1e6:.1f} MB")
    if options.test and not found:
        test(wheel)
    return 1 if found else 0


def machine_of(wheel: pathlib.Path) -> str:
    return next(machine for machine in ("x86_64", "aarch64") if wheel.stem.endswith(machine))


def test(wheel: pathlib.Path) -> None:
    """Installs the wheel into a fresh environment and runs it there."""
    machine = machine_of(wheel)
    emulator = runner(machine)
    if emulator is None:
        print(f"SKIPPED: the wheel is for {machine} and does not run here")
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch).resolve() / "venv"
        if emulator:
            unpacked(wheel, folder)
        else:
            venv.create(folder, with_pip=True)
            subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-index", str(wheel)], check=True)
        library, = folder.glob("lib/python3*/site-packages/gpuwhy/_lib/libprof.so")
        check(folder / "bin" / "gpuwhy", library, emulator)
        if not emulator:
            without_driver(folder / "bin" / "python")
    place = "unpacked, runs under qemu-user, finds" if emulator else "installed into a fresh environment, runs, plays the demo, finds"
    print(f"{wheel.name}: {place} its library")


def unpacked(wheel: pathlib.Path, folder: pathlib.Path) -> None:
    """Lays a wheel of another machine out as pip does there: pip here refuses it."""
    import gpuwhy_build

    site, command = folder / "lib" / "python3" / "site-packages", folder / "bin" / gpuwhy_build.COMMAND
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    command.parent.mkdir()
    script, = site.glob(f"*.data/scripts/{gpuwhy_build.COMMAND}")
    script.rename(command)
    command.chmod(0o755)


def without_driver(python: pathlib.Path) -> None:
    """Checks that each libcupti that PyTorch installs is refused where there is no driver: some crash the process."""
    sys.path.insert(0, str(ROOT / "testing" / "layout-check"))
    import fetch

    program = ("import ctypes, gpuwhy\ntry:\n ctypes.CDLL('libcuda.so.1'); print('SKIPPED: there is a driver')\nexcept OSError:\n"
               " try: gpuwhy.prepare()\n except gpuwhy.NotMeasured as error: print(error)")
    for package in fetch.CUPTI:
        try:
            library = fetch.fetch(*package)
        except fetch.Unavailable as error:
            print(f"SKIPPED: {package[0]} {package[1]}: {error}")
            continue
        run = subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=False,
                             env={**os.environ, "GPUWHY_CUPTI_PATH": str(library)}, cwd=python.parent)
        assert run.returncode == 0 and ("no NVIDIA driver" in run.stdout or "SKIPPED" in run.stdout), f"{package}: {run}"


def check(command: pathlib.Path, library: pathlib.Path, emulator: list[str]) -> None:
    """Checks that an installed command runs, finds the library that came with it, and plays the demo: not under an
    emulator, which cannot run the program that the demo starts (tests/arm.py runs it)."""
    import gpuwhy_build

    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUWHY_")}

    def said(*arguments: str) -> str:
        # In a folder without a checkout above it.
        run = subprocess.run([*emulator, str(command), *arguments], capture_output=True, text=True, env=environment, cwd=command.parent,
                             check=False)
        assert not run.stderr, f"{command} {' '.join(arguments)}: {run.stderr}"
        return run.stdout

    wanted = f"gpuwhy {gpuwhy_build.project()['project']['version']}"
    version = said("--version")
    assert version.split(" (")[0].strip() == wanted, f"{command} --version said {version!r}, not {wanted}"
    found = said("doctor")
    assert f"libprof.so {library}" in " ".join(found.split()), f"{command} doctor did not find {library}:\n{found}"
    assert said("report", "--explain", "launch"), "gpuwhy report --explain launch said nothing"
    if emulator:
        return
    played = said("demo", "--fast", "--all")
    reports = len(re.findall("^Bottleneck: ", played, re.M))
    assert reports == len(gpuwhy_build.RECORDINGS), f"{command} demo printed {reports} reports:\n{played}"


def runner(machine: str) -> list[str] | None:
    """The words before a command for `machine`: none on such a machine, else qemu-user for Arm, from Debian into
    target/arm-tools. `None` if the command cannot run here."""
    if machine == os.uname().machine:
        return []
    tools = ROOT / "target" / "arm-tools"
    emulator = tools / "usr" / "bin" / f"qemu-{machine}-static"
    if machine == "aarch64" and not emulator.is_file() and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        with tempfile.TemporaryDirectory() as scratch:
            packages = ["qemu-user-static", "libc6-arm64-cross", "libgcc-s1-arm64-cross"]
            subprocess.run(["apt-get", "download", "-qq", *packages], cwd=scratch, check=False, capture_output=True)
            found = sorted(pathlib.Path(scratch).glob("*.deb"))
            for package in found if len(found) == len(packages) else ():
                subprocess.run(["dpkg-deb", "-x", str(package), str(tools)], check=True)
        # Those of other machines take 350 MB.
        for other in set(emulator.parent.glob("qemu-*")) - {emulator}:
            other.unlink()
    return [str(emulator), "-L", str(tools / "usr" / "aarch64-linux-gnu")] if emulator.is_file() else None


def installed(folder: pathlib.Path, tools: list[str]) -> str:
    """Creates a virtual environment with the tools; returns its Python."""
    python, stamp = folder / "bin" / "python", folder / "tools.txt"
    present = stamp.read_text().split("\n") if stamp.exists() else []
    if not set(tools) <= set(present):
        venv.create(folder, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *tools], check=True)
        stamp.write_text("\n".join(tools))
    return str(python)


def audited(auditwheel: pathlib.Path, wheel: pathlib.Path) -> list[str]:
    """What auditwheel finds wrong with the tag of the wheel."""
    run = subprocess.run([str(auditwheel), "show", "--json", str(wheel)], capture_output=True, text=True, check=False)
    if run.returncode:
        return [f"auditwheel ended with {run.returncode}: {(run.stdout + run.stderr).strip()}"]
    tag, tags = json.loads(run.stdout)["overall_tag"], wheel.stem.split("-")[-1].split(".")
    print(f"auditwheel: {tag}")
    return [] if tag in tags else [f"auditwheel finds the tag {tag}"]


def problems(wheel: pathlib.Path, most_bytes: int | None) -> list[str]:
    """Faults of a wheel: size, paths of this machine, libraries that are not part of the system."""
    import gpuwhy_build

    found = []
    size = wheel.stat().st_size
    if most_bytes is not None and size > most_bytes:
        found.append(f"{size / 1e6:.1f} MB, at most {most_bytes / 1e6:.1f} MB are allowed")
    # With a slash: root_cause.rs is not below /root.
    homes = {f"{path}/".encode() for path in (pathlib.Path.home(), ROOT)} - {b"//"}
    with zipfile.ZipFile(wheel) as archive:
        if archive.testzip() is not None:
            found.append("the archive is damaged")
        for name in archive.namelist():
            data = archive.read(name)
            if data[:4] != b"\x7fELF":
                continue
            for library in sorted(set(needed_libraries(data)) - gpuwhy_build.SYSTEM_LIBRARIES):
                found.append(f"{name} needs {library}")
            for home in sorted(homes):
                if home in data and most_bytes is not None:
                    found.append(f"{name} holds the path {home.decode()}")
    return found


def needed_libraries(data: bytes) -> list[str]:
    """Libraries that an ELF file needs (DT_NEEDED)."""
    import struct

    def section(at: int) -> tuple[int, int, int, int, int]:
        kind, = struct.unpack_from("<I", data, at + 4)
        offset, size, link = struct.unpack_from("<QQI", data, at + 24)
        return kind, offset, size, link, at

    table, = struct.unpack_from("<Q", data, 0x28)
    count, = struct.unpack_from("<H", data, 0x3C)
    sections = [section(table + 64 * at) for at in range(count)]
    found = []
    for kind, offset, size, link, _ in sections:
        if kind == 6:  # SHT_DYNAMIC
            names = sections[link][1]
            for at in range(offset, offset + size, 16):
                tag, value = struct.unpack_from("<QQ", data, at)
                if tag == 1:  # DT_NEEDED
                    end = data.index(b"\0", names + value)
                    found.append(data[names + value:end].decode())
    return found


if __name__ == "__main__":
    sys.exit(main())
