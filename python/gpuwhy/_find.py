"""Finds the command and the library that belong to this module, and compares versions.

The list of installed files has the path of the command, which works in virtual environments, under `--prefix` and in
overlays of uv. `pip install --target` lists no scripts: then `bin` next to the package is tried. The `PATH` comes last.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Iterator

from . import __version__
from ._errors import NotFound, VersionMismatch

LIBRARY = "libprof.so"
# Names the library in another location, for the command too.
LIBRARY_VARIABLE = "GPUWHY_LIB"
_HERE = Path(__file__).resolve().parent


def _commands() -> Iterator[Path]:
    """Possible places of the command, the most reliable first."""
    import importlib.metadata

    for distribution in importlib.metadata.distributions(name="gpuwhy"):
        files = distribution.files or []
        mine = any(
            file.name == "_find.py" and Path(str(distribution.locate_file(file))).resolve() == Path(__file__).resolve()
            for file in files)
        if mine:
            for file in files:
                if file.name == "gpuwhy" and file.parent.name in ("bin", "Scripts"):
                    yield Path(str(distribution.locate_file(file)))
    yield _HERE.parent / "bin" / "gpuwhy"
    # lib/python3.12/site-packages/gpuwhy
    for above in list(_HERE.parents)[2:4]:
        yield above / "bin" / "gpuwhy"
    on_path = shutil.which("gpuwhy")
    if on_path:
        yield Path(on_path)


@functools.lru_cache(maxsize=None)
def command() -> Path:
    """The command `gpuwhy`.

    Raises NotFound, or VersionMismatch when its version differs from that of this package.
    """
    looked: list[Path] = []
    for place in _commands():
        if place.is_file() and os.access(place, os.X_OK) and _is_binary(place):
            # Removes the .. of installed file lists, but keeps links of environments.
            found = Path(os.path.normpath(place.absolute()))
            _compare("the command", found, _version_of(found))
            return found
        looked.append(place)
    places = "\n  ".join(str(place) for place in looked)
    raise NotFound(
        f"the command gpuwhy of this module is not installed. Looked for\n  {places}\nand on the PATH. "
        "Install the wheel again: pip install --force-reinstall gpuwhy")


def _is_binary(path: Path) -> bool:
    """True for the command itself, as opposed to a script of that name."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _version_of(path: Path) -> str:
    try:
        said = subprocess.run([str(path), "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise NotFound(f"{path} does not run: {error}") from error
    words = said.split()
    return words[1] if len(words) > 1 else "unknown"


def _compare(what: str, path: Path, version: str) -> None:
    if version != __version__:
        raise VersionMismatch(
            f"versions differ: {what} {path} is {version}, and the module {_HERE} is {__version__}. "
            "Install both from one wheel: pip install --force-reinstall gpuwhy")


def library() -> Path:
    """`libprof.so`: named by GPUWHY_LIB, in the wheel, or next to the command.

    Raises NotFound.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        path = Path(named)
        if not path.is_file():
            raise NotFound(f"{LIBRARY} not found: {LIBRARY_VARIABLE} names {path}, which is not a file. "
                           "Correct the variable or unset it.")
        return path.absolute()
    looked = [_HERE / "_lib" / LIBRARY]
    try:
        folder = command().parent
        looked += [folder / "deps" / LIBRARY, folder / LIBRARY, folder.parent / "lib" / LIBRARY,
                   folder.parent / "lib" / "gpuwhy" / LIBRARY]
    except NotFound:
        pass
    for path in looked:
        if path.is_file():
            return path.absolute()
    places = "\n  ".join(str(path) for path in looked)
    raise NotFound(f"{LIBRARY} not found. Looked for\n  {places}\nInstall the wheel again, or name it in "
                   f"{LIBRARY_VARIABLE}.")


def environment(output: str | os.PathLike[str] | None = None, **settings: str) -> dict[str, str]:
    """Variables that cause a process to be measured from its start, for launchers that take an environment: Ray's
    `runtime_env`, a pod, `subprocess`. `output` is the pattern of the trace, such as `run/rank%q{RANK}.gpuwhy`. Further
    settings are variables without their prefix: `environment(mode="full")` sets `GPUWHY_MODE`.

    Raises NotFound when the library is not installed.
    """
    path = str(library())
    found = {"CUDA_INJECTION64_PATH": path, "NVTX_INJECTION64_PATH": path}
    if output is not None:
        found["GPUWHY_OUTPUT"] = os.path.abspath(os.fspath(output))
    found.update({"GPUWHY_" + name.upper(): value for name, value in settings.items()})
    return found
