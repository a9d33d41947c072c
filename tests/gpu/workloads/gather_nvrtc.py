"""The kernels of gather_kernels.cuh, compiled by nvrtc with line information and launched through the driver:
gather_nvrtc.py SECONDS. Needs PyTorch for its nvrtc, nothing else of it.
"""

from __future__ import annotations

import ctypes
import glob
import pathlib
import sys
import time

import torch

SOURCE = pathlib.Path(__file__).resolve().parent / "gather_kernels.cuh"
COUNT, THREADS = 128 << 20, 1 << 20


def nvrtc() -> ctypes.CDLL:
    packages = pathlib.Path(torch.__file__).resolve().parent.parent
    found = [path for path in glob.glob(f"{packages}/nvidia/*/lib/libnvrtc.so.*") if ".alt." not in path]
    return ctypes.CDLL(found[0] if found else "libnvrtc.so")


def compiled(capability: tuple[int, int]) -> bytes:
    library, program = nvrtc(), ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), SOURCE.read_bytes(), str(SOURCE).encode(), 0, None, None) == 0
    options = [b"--generate-line-info", f"--gpu-architecture=sm_{capability[0]}{capability[1]}".encode()]
    code = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    if code:
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, text)
        sys.exit(f"nvrtc: {code}: {text.value.decode()}")
    assert library.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    cubin = ctypes.create_string_buffer(size.value)
    assert library.nvrtcGetCUBIN(program, cubin) == 0
    return cubin.raw


def main() -> None:
    source = torch.zeros(COUNT, device="cuda")
    result = torch.zeros(THREADS, device="cuda")
    driver, module = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    check = lambda code: sys.exit(f"the driver answered {code}") if code else None
    check(driver.cuModuleLoadData(ctypes.byref(module), compiled(torch.cuda.get_device_capability())))
    kernels = []
    for name in (b"k_gather", b"k_barrier"):
        function = ctypes.c_void_p()
        check(driver.cuModuleGetFunction(ctypes.byref(function), module, name))
        kernels.append(function)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (source, result)]
    count, loops = ctypes.c_uint(COUNT), ctypes.c_int(200)
    arguments = [[pointers[0], pointers[1], count], [pointers[1], loops]]
    end, rounds = time.monotonic() + float(sys.argv[1]), 0
    while time.monotonic() < end:
        for function, values, block in zip(kernels, arguments, (256, 1024)):
            addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
            check(driver.cuLaunchKernel(function, THREADS // block, 1, 1, block, 1, 1, 0, None, addresses, None))
        torch.cuda.synchronize()
        rounds += 1
    print("done" if rounds else "no round")


if __name__ == "__main__":
    main()
