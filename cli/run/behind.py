"""Runs code right after the program's import of a module. The first part of the `sitecustomize` of `gpuwhy run --pytorch`
and `gpuwhy try`.

Python imports `sitecustomize` at startup; the folder of the file is the first in PYTHONPATH. Nothing here imports torch,
the sitecustomize that Python would have found without this one runs as usual, and a failure does not affect the program:
`complain`, which the parts behind this one define, says it.

gpuwhy appends the other parts and the call of `main`.
"""

import importlib.machinery
import importlib.util
import os
import sys


def hide():
    """Hides the folder of this file from the program, and returns it. Children find it through the environment."""
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != own]
    return own


def run_next():
    """Runs the sitecustomize that Python would have found."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def behind(name, then):
    """Calls `then` with the module `name` once it is imported."""
    if name in sys.modules:
        guarded(then, sys.modules[name])
    else:
        sys.meta_path.insert(0, Behind(name, then))


def guarded(then, module):
    try:
        then(module)
    except Exception as error:
        complain(error)


def say(text, error=None):
    """Writes a line to stderr if that is possible; without a stderr, `print` would write to stdout."""
    try:
        if sys.stderr is not None:
            reason = "" if error is None else f": {type(error).__name__}: {error}"
            print(f"gpuwhy: {text}{reason}", file=sys.stderr)
    except Exception:
        # stderr is closed or full, or the error has no text.
        pass


class Behind:
    """Finds the module as usual, and calls `then` once it is imported."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader, execute = spec.loader, spec.loader.exec_module

            def exec_module(module):
                # Only for this import: restore the loader, which another one may have done.
                vars(loader).pop("exec_module", None)
                execute(module)
                guarded(self.then, module)

            loader.exec_module = exec_module
        return spec
