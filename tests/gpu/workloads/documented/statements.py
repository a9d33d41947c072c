"""Runs a snippet of the documents statement by statement, and prints the outcome of each as JSON."""

from __future__ import annotations

import ast
import ctypes
import json
import os
import sys
import traceback

# Without a GPU a recording is played instead.
REPLAY = os.environ.get("GPUWHY_CUPTI_PATH") if os.environ.get("GPU_SUITE_REPLAY_HOST") else None


def play(*_: object) -> None:
    """Plays the complete recording at once."""
    ctypes.CDLL(REPLAY).gpuwhy_replay_play(ctypes.c_uint64(2**64 - 1))


def run(names: dict, documented: tuple[type[Exception], ...] = ()) -> None:
    """`documented`: errors that the snippet's statements raise according to its text."""
    text = open(sys.argv[1], encoding="utf-8").read()
    for statement in ast.parse(text).body:
        error = ""
        try:
            exec(compile(ast.Module([statement], []), "snippet", "exec"), names)
        except documented:
            pass
        except Exception:
            error = traceback.format_exc(limit=-2)
        print(json.dumps({"statement": ast.unparse(statement).splitlines()[0], "line": statement.lineno, "error": error}), flush=True)
