"""Kernels from source, compiled by nvrtc with line information and launched through the driver. Needs PyTorch for its
nvrtc, and a context.
"""

from __future__ import annotations

import ctypes
import glob
import pathlib
import sys
from collections.abc import Sequence

import torch


def library() -> ctypes.CDLL:
    packages = pathlib.Path(torch.__file__).resolve().parent.parent
    found = [path for path in glob.glob(f"{packages}/nvidia/*/lib/libnvrtc.so.*") if ".alt." not in path]
    return ctypes.CDLL(found[0] if found else "libnvrtc.so")


def compiled(source: bytes, path: str, capability: tuple[int, int]) -> bytes:
    """The cubin of a source. Ends the program with the compiler's log if there is none."""
    nvrtc, program = library(), ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, path.encode(), 0, None, None) == 0
    options = [b"--generate-line-info", f"--gpu-architecture=sm_{capability[0]}{capability[1]}".encode()]
    code = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    if code:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, text)
        sys.exit(f"nvrtc: {code}: {text.value.decode()}")
    assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    cubin = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetCUBIN(program, cubin) == 0
    return cubin.raw


class Module:
    """The kernels of a source, loaded into the current context."""

    def __init__(self, source: bytes, path: str) -> None:
        self._driver, self._module = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        self._functions: dict[str, ctypes.c_void_p] = {}
        cubin = compiled(source, path, torch.cuda.get_device_capability())
        self._check(self._driver.cuModuleLoadData(ctypes.byref(self._module), cubin))

    @staticmethod
    def _check(code: int) -> None:
        if code:
            sys.exit(f"the driver answered {code}")

    def function(self, name: str) -> ctypes.c_void_p:
        if name not in self._functions:
            found = ctypes.c_void_p()
            self._check(self._driver.cuModuleGetFunction(ctypes.byref(found), self._module, name.encode()))
            self._functions[name] = found
        return self._functions[name]

    def launch(self, name: str, grid: Sequence[int], block: Sequence[int], *arguments: torch.Tensor | ctypes._SimpleCData) -> None:
        """Launches on PyTorch's stream. A tensor is passed by its address."""
        values = [ctypes.c_void_p(one.data_ptr()) if isinstance(one, torch.Tensor) else one for one in arguments]
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self._check(self._driver.cuLaunchKernel(self.function(name), *grid, *block, 0, stream, addresses, None))
