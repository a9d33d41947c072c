"""Runs the main function of a program on each command, in a process that has already loaded its libraries.

    python on_command.py --answer FD --libraries torch,transformers [--rehearse ARGUMENTS] SCRIPT ARGUMENTS...

Loading PyTorch and creating a context takes longer than most measurements. Here it is done first, so that many programs
can do it at once; then each waits until it has the host to itself. No work is launched on a device before the first
command, so that the trace of such a program begins with its own work.

On FD the process writes `ready`, and `done` after each run; `missing NAME` and exit status 77 if a library is not
installed. A line on stdin starts a run; end of file ends the process. With --rehearse the program runs once with
further arguments before it is ready: caches of compilers are then filled.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import os
import pathlib
import sys
from types import ModuleType

NOT_INSTALLED = 77


def load(script: pathlib.Path) -> ModuleType:
    """The script as a module under its own name, with its folder first on the path, as Python would run it."""
    sys.path.insert(0, str(script.parent))
    # The name of a lesson begins with a digit, so it cannot be imported by name.
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[script.stem] = module
    spec.loader.exec_module(module)
    return module


def create_context(library: str, module: ModuleType) -> None:
    """Loads the driver and creates the context of the library; launches nothing."""
    if library == "torch" and module.cuda.is_available():
        module.cuda.synchronize()
    elif library == "jax":
        module.devices()
    elif library == "cupy":
        module.cuda.Device().synchronize()
    elif library == "numba.cuda":
        module.current_context()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answer", type=int, default=1, metavar="FD")
    parser.add_argument("--libraries", default="", help="modules to load, separated by commas")
    parser.add_argument("--rehearse", default=None, help="further arguments of a run before the process is ready")
    parser.add_argument("script", type=pathlib.Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args()


def main() -> None:
    options = parse()
    answer = os.fdopen(options.answer, "w", buffering=1)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for library in filter(None, options.libraries.split(",")):
        try:
            create_context(library, importlib.import_module(library))
        except ImportError as error:
            print(f"missing {library}: {error}", file=answer)
            sys.exit(NOT_INSTALLED)
    if os.environ.get("GPU_SUITE_REHEARSAL"):
        importlib.import_module("rehearsal")
    module = load(options.script.resolve())

    def run(*more: str) -> None:
        sys.argv = [str(options.script), *options.arguments, *more]
        module.main()
        sys.stdout.flush()
        gc.collect()

    if options.rehearse is not None:
        run(*options.rehearse.split())
    print("ready", file=answer)
    for _ in sys.stdin:
        run()
        print("done", file=answer)


if __name__ == "__main__":
    main()
