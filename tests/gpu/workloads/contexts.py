"""A CUDA program without a framework that destroys its context and continues: only the driver, through ctypes.

`destroy` makes a context, launches, and destroys it with work still queued; then the same again in a second one.
`reset` does what cudaDeviceReset does: it resets the primary context in the middle, retains it again, and continues to
launch. `leave` destroys the context and exits by returning from main with the driver still loaded.

The last line of stdout is `kernels N`: the number of launches, all of which have run.
"""

from __future__ import annotations

import argparse
import ctypes
import sys

LAUNCHES = 2_000
PTX = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry nothing() { ret; }
\0"""

driver = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: object) -> None:
    code = getattr(driver, name)(*arguments)
    if code != 0:
        raise RuntimeError(f"{name} answered {code}")


def launch(synchronize: bool) -> int:
    """Launches in the current context, whose module is loaded anew."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"nothing")
    for _ in range(LAUNCHES):
        call("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, None, None)
    if synchronize:
        call("cuCtxSynchronize")
    return LAUNCHES


def in_own_context(device: ctypes.c_int) -> int:
    context = ctypes.c_void_p()
    call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    launched = launch(synchronize=False)
    call("cuCtxDestroy_v2", context)
    return launched


def in_primary_context(device: ctypes.c_int) -> int:
    context = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    return launch(synchronize=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manner", choices=["destroy", "reset", "leave"])
    manner = parser.parse_args().manner
    device = ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    if manner == "reset":
        launched = in_primary_context(device)
        call("cuDevicePrimaryCtxReset_v2", device)
        launched += in_primary_context(device)
    else:
        launched = in_own_context(device)
        if manner == "destroy":
            launched += in_own_context(device)
    print("kernels", launched, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
