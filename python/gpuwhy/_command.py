"""Calls the command `gpuwhy`, the source of all figures in this package."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Sequence

from . import _find
from ._errors import CommandFailed

# Variables that cause a process to be measured; the command itself must not be.
_INJECTION = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")


def environment() -> dict[str, str]:
    """Environment for commands that this package calls: with the library of this package, and not measured itself."""
    variables = {name: value for name, value in os.environ.items() if name not in _INJECTION}
    return variables


def call(arguments: Sequence[str | os.PathLike[str]], accepted: Sequence[int] = (0, 1)) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `gpuwhy ARGUMENTS`. For most commands, 1 means an incomplete result, which the
    result itself states.

    Raises CommandFailed for other exit codes.
    """
    line = [str(_find.command()), *(os.fspath(argument) for argument in arguments)]
    done = subprocess.run(line, capture_output=True, env=environment(), stdin=subprocess.DEVNULL, check=False)
    out, err = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    if done.returncode not in accepted:
        said = err.strip() or f"gpuwhy {arguments[0]} ended with {done.returncode}"
        raise CommandFailed(done.returncode, said)
    return done.returncode, out, err


def as_json(arguments: Sequence[str | os.PathLike[str]], accepted: Sequence[int] = (0, 1)) -> Any:
    """Output of `gpuwhy ARGUMENTS`, parsed as JSON."""
    code, out, err = call(arguments, accepted)
    try:
        return json.loads(out)
    except ValueError as error:
        raise CommandFailed(code, err.strip() or f"gpuwhy {arguments[0]} printed no JSON: {error}") from error
