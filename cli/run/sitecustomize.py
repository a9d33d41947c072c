"""Makes PyTorch emit NVTX ranges, without a change to the program: `gpuwhy run --pytorch`. Appended to behind.py; gpuwhy
appends memory.py for the mode of that name."""

import atexit
import contextlib
import os
import shutil
import sys


def main(mode, owner):
    """Turns on `mode` when torch is imported; the process `owner` removes the folder when it ends."""
    own = hide()
    if os.getpid() == owner:
        atexit.register(lambda: os.getpid() == owner and shutil.rmtree(own, ignore_errors=True))
    behind("torch", MODES[mode])
    run_next()


def complain(error):
    say("no ranges of PyTorch", error)


def _autograd(torch, shapes=False):
    """Does the same as entering `torch.autograd.profiler.emit_nvtx`, except for its synchronization, which would use
    CUDA before the program has chosen a device."""
    _check_nvtx(torch)
    from torch.autograd import profiler

    try:
        config = profiler.ProfilerConfig(
            profiler.ProfilerState.NVTX, shapes, False, False, False, False, profiler._ExperimentalConfig()
        )
        profiler._enable_profiler(config, set())
        atexit.register(_leave, profiler)
    except (AttributeError, TypeError):
        # Another version: use the public interface as soon as the program itself uses CUDA.
        def enter():
            try:
                profiler.emit_nvtx(record_shapes=shapes).__enter__()
            except Exception as error:
                complain(error)

        torch.cuda._lazy_call(enter)


def _leave(profiler):
    # PyTorch warns of a profiler that was left on. Ignore errors: the program may have turned it off by now.
    with contextlib.suppress(Exception):
        profiler._disable_profiler()


def _functions(torch):
    """Puts a range around each call of torch's Python interface, on the thread that imports it."""
    _check_nvtx(torch)
    from torch.overrides import TorchFunctionMode

    push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    names = {}

    class Ranges(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            name = names.get(function)
            if name is None:
                name = names[function] = _name(function)
            if not name:
                return function(*args, **(kwargs or {}))
            push(name)
            try:
                return function(*args, **(kwargs or {}))
            finally:
                pop()

    Ranges().__enter__()


def _name(function):
    """`torch.add`, `Tensor.add`, `torch.nn.functional.linear`; empty for attributes, which do no work."""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)
    if name.rpartition(".")[2] in ("__get__", "__set__"):
        return ""
    for prefix, shown in (("_VariableFunctionsClass.", "torch."), ("TensorBase.", "Tensor.")):
        if name.startswith(prefix):
            return shown + name[len(prefix) :]
    module = getattr(function, "__module__", None)
    return f"{module}.{name}" if module else name


def _check_nvtx(torch):
    """Fails if torch was built without NVTX."""
    torch.cuda.nvtx.range_push("")
    torch.cuda.nvtx.range_pop()


MODES = {
    "autograd-nvtx": _autograd,
    "autograd-shapes-nvtx": lambda torch: _autograd(torch, shapes=True),
    "functions-nvtx": _functions,
}
