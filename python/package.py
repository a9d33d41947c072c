#!/usr/bin/env python3
"""Builds the tarball and the Debian package, by the recipe of the wheel.

    python3 python/package.py                              dist/gpuwhy-...-linux-x86_64.tar.gz and dist/gpuwhy_..._amd64.deb
    python3 python/package.py --binaries target/release    from existing files
    python3 python/package.py --test                       also unpacks, installs, runs and removes them in scratch folders

Both contain the command, libprof.so, the demo, manual pages and completions of bash, zsh and fish, and, if it was
built, libgpuwhy_c.so with its header. Steps that are impossible here are SKIPPED.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python" / "build_backend"), str(ROOT / "python")]
import wheel  # noqa: E402

DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
COMPLETIONS = {"gpuwhy.bash": "share/bash-completion/completions/gpuwhy", "_gpuwhy": "share/zsh/site-functions/_gpuwhy",
               "gpuwhy.fish": "share/fish/vendor_completions.d/gpuwhy.fish"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", metavar="DIR", help="folder of the packages [dist]")
    parser.add_argument("--glibc", default="2.17", metavar="VERSION", help="oldest glibc [2.17]")
    parser.add_argument("--machine", default="x86_64", choices=sorted(DEBIAN))
    parser.add_argument("--binaries", type=pathlib.Path, metavar="DIR", help="take gpuwhy and libprof.so from here")
    parser.add_argument("--test", action="store_true", help="unpack, install, run and remove what was built")
    options = parser.parse_args()
    import gpuwhy_build

    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.binaries.resolve() if options.binaries else built(options)
        tree = pathlib.Path(scratch) / "tree"
        machine = fill(tree, folder, pathlib.Path(scratch))
        version = gpuwhy_build.project()["project"]["version"]
        tarball = options.out / f"gpuwhy-{version}-linux-{machine}.tar.gz"
        write_tarball(tarball, tree, f"gpuwhy-{version}")
        print(f"{tarball} {tarball.stat().st_size / 1e6:.1f} MB")
        package = write_deb(options.out, tree, version, machine, pathlib.Path(scratch))
        if package is not None:
            print(f"{package} {package.stat().st_size / 1e6:.1f} MB")
        if options.test:
            test_tarball(tarball, machine, pathlib.Path(scratch))
            if package is not None:
                test_deb(package, machine, pathlib.Path(scratch))
    return 0


def built(options: argparse.Namespace) -> pathlib.Path:
    """Builds with zig for an old glibc, like the wheel; returns the folder."""
    import gpuwhy_build

    tools = ROOT / "target" / "wheel-tools"
    wheel.installed(tools, wheel.BUILD)
    os.environ["PATH"] = f"{tools / 'bin'}:{os.environ['PATH']}"
    os.environ["GPUWHY_WHEEL_TARGET"] = f"{options.machine}-unknown-linux-gnu.{options.glibc}"
    return gpuwhy_build.build("gpuwhy-c")


def fill(tree: pathlib.Path, folder: pathlib.Path, scratch: pathlib.Path) -> str:
    """Lays the files out as under a prefix such as /usr; returns the machine that they are for."""
    import gpuwhy_build

    def put(data: bytes, name: str, mode: int = 0o644) -> None:
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)

    command = gpuwhy_build.prepared(folder, gpuwhy_build.COMMAND, scratch).read_bytes()
    machine = gpuwhy_build.machine(command)
    put(command, "bin/gpuwhy", 0o755)
    put(gpuwhy_build.prepared(folder, gpuwhy_build.LIBRARY, scratch).read_bytes(), "lib/gpuwhy/libprof.so")
    for name in gpuwhy_build.demo(folder):
        put(gpuwhy_build.prepared(folder, name, scratch).read_bytes(), f"lib/gpuwhy/{name}", 0o755)
    for name in gpuwhy_build.recordings():
        put((ROOT / "testing" / "fixtures" / name).read_bytes(), f"lib/gpuwhy/recordings/{name}")
    if (folder / "libgpuwhy_c.so").is_file():
        put(gpuwhy_build.prepared(folder, "libgpuwhy_c.so", scratch).read_bytes(), "lib/libgpuwhy_c.so")
        put((ROOT / "capi" / "include" / "gpuwhy.h").read_bytes(), "include/gpuwhy.h")
    else:
        print("SKIPPED: the C interface: libgpuwhy_c.so was not built (cargo build --release -p gpuwhy-c)")
    for name in ("README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"):
        put((ROOT / name).read_bytes(), f"share/doc/gpuwhy/{name}")
    pages = scratch / "pages"
    emulator = wheel.runner(machine)
    line = [str(tree / "bin" / "gpuwhy"), "completions", "--packages", str(pages)]
    if emulator is None or subprocess.run([*emulator, *line], check=False).returncode != 0:
        print(f"SKIPPED: manual pages and completions: the command for {machine} does not run here")
        return machine
    for page in sorted((pages / "man1").iterdir()):
        put(gzip.compress(page.read_bytes(), mtime=0), f"share/man/man1/{page.name}.gz")
    for name, place in COMPLETIONS.items():
        put((pages / "completions" / name).read_bytes(), place)
    return machine


def files(tree: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in tree.rglob("*") if path.is_file())


def write_tarball(target: pathlib.Path, tree: pathlib.Path, base: str) -> None:
    import gpuwhy_build

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in files(tree):
            info = tarfile.TarInfo(f"{base}/{path.relative_to(tree)}")
            info.size, info.mode, info.mtime = path.stat().st_size, path.stat().st_mode & 0o777, gpuwhy_build.epoch()
            archive.addfile(info, io.BytesIO(path.read_bytes()))
    with open(target, "wb") as file, gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=gpuwhy_build.epoch()) as packed:
        packed.write(buffer.getvalue())


def write_deb(out: pathlib.Path, tree: pathlib.Path, version: str, machine: str, scratch: pathlib.Path) -> pathlib.Path | None:
    import gpuwhy_build

    if shutil.which("dpkg-deb") is None:
        print("SKIPPED: the Debian package: there is no dpkg-deb")
        return None
    root = scratch / "deb"
    shutil.copytree(tree, root / "usr")
    about = gpuwhy_build.project()["project"]
    major, minor = max(gpuwhy_build.glibc(path.read_bytes()) for path in files(tree) if path.read_bytes()[:4] == b"\x7fELF")
    size = sum(path.stat().st_size for path in files(tree)) // 1024 + 1
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN" / "control").write_text(
        f"Package: gpuwhy\nVersion: {version}\nArchitecture: {DEBIAN[machine]}\nMaintainer: The gpuwhy developers "
        f"<{about['urls']['Repository']}>\nInstalled-Size: {size}\nDepends: libc6 (>= {major}.{minor}), libgcc-s1\n"
        f"Section: devel\nPriority: optional\nHomepage: {about['urls']['Repository']}\nDescription: {about['description']}\n"
        " Names the bottleneck of a CUDA program, with evidence and an upper bound on\n the speed-up. Needs the NVIDIA driver"
        " and libcupti to profile programs.\n")
    licenses = "\n\n".join((ROOT / name).read_text() for name in ("LICENSE-MIT", "LICENSE-APACHE"))
    (root / "usr/share/doc/gpuwhy/copyright").write_text(f"gpuwhy, {about['urls']['Repository']}\n\n{about['license']}\n\n{licenses}")
    for path in [root, *root.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    target = out / f"gpuwhy_{version}_{DEBIAN[machine]}.deb"
    epoch = {"SOURCE_DATE_EPOCH": str(gpuwhy_build.epoch())}
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(root), str(target)], env={**os.environ, **epoch},
                   stdout=subprocess.DEVNULL, check=True)
    return target


def test_tarball(tarball: pathlib.Path, machine: str, scratch: pathlib.Path) -> None:
    place = scratch / "unpacked"
    subprocess.run(["tar", "-C", str(scratch), "--one-top-level=unpacked", "--strip-components=1", "-xzf", str(tarball)], check=True)
    emulator = wheel.runner(machine)
    if emulator is None:
        print(f"SKIPPED: the tarball is for {machine} and does not run here")
        return
    wheel.check(place / "bin" / "gpuwhy", place / "lib" / "gpuwhy" / "libprof.so", emulator)
    checked_pages(place)
    print(f"{tarball.name}: unpacked, runs, finds its library, its manual pages can be read")


def test_deb(package: pathlib.Path, machine: str, scratch: pathlib.Path) -> None:
    if shutil.which("dpkg") is None:
        print("SKIPPED: installing the Debian package: there is no dpkg")
        return
    root = scratch / "root"
    make_system(root)
    before = set(files(root))
    dpkg(root, "--install", str(package))
    emulator = wheel.runner(machine)
    if emulator is not None:
        wheel.check(root / "usr" / "bin" / "gpuwhy", root / "usr" / "lib" / "gpuwhy" / "libprof.so", emulator)
        checked_pages(root / "usr")
    else:
        print(f"SKIPPED: the package is for {machine} and does not run here")
    dpkg(root, "--purge", "gpuwhy")
    left = [path for path in set(files(root)) - before if "var" not in path.relative_to(root).parts]
    assert not left, f"the package left {left}"
    print(f"{package.name}: installed into a scratch root, runs, finds its library, and leaves nothing when it is removed")


def make_system(root: pathlib.Path) -> None:
    """Creates an empty system for dpkg."""
    state = root / "var" / "lib" / "dpkg"
    for folder in ("info", "updates", "triggers"):
        (state / folder).mkdir(parents=True)
    for name in ("status", "available"):
        (state / name).touch()
    (root / "var" / "log").mkdir()


def dpkg(root: pathlib.Path, *arguments: str) -> None:
    """Runs dpkg on a scratch system. It has no C library, so the dependencies of the package are missing; the user need
    not be root, nor have ldconfig on the PATH."""
    forced = "--force-depends,architecture,not-root,bad-path"
    finished = subprocess.run(["dpkg", f"--root={root}", forced, f"--log={root}/var/log/dpkg.log", *arguments],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    assert finished.returncode == 0, f"dpkg {' '.join(arguments)} ended with {finished.returncode}:\n{finished.stderr}"


def checked_pages(place: pathlib.Path) -> None:
    pages = sorted((place / "share" / "man" / "man1").glob("*.gz"))
    assert any(page.name == "gpuwhy-run.1.gz" for page in pages), f"no page of gpuwhy run among {pages}"
    bash = place / "share" / "bash-completion" / "completions" / "gpuwhy"
    words = subprocess.run(["bash", "-c", f'source "{bash}"; COMP_WORDS=(gpuwhy han); COMP_CWORD=1; _gpuwhy gpuwhy han gpuwhy; '
                            'echo "${COMPREPLY[@]}"'], capture_output=True, text=True, check=False)
    assert words.stdout.split() == ["hang"], f"bash completes `gpuwhy han` to {words.stdout!r} {words.stderr!r}"
    if shutil.which("man") is None:
        print("SKIPPED: reading the manual pages: there is no man")
        return
    for page in pages:
        shown = subprocess.run(["man", "--warnings", "-l", str(page)], capture_output=True, text=True, check=False,
                               env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
        assert shown.returncode == 0 and "SYNOPSIS" in shown.stdout, f"{page.name}: {shown.stderr}"
        assert not shown.stderr.strip(), f"{page.name}: {shown.stderr}"


if __name__ == "__main__":
    sys.exit(main())
