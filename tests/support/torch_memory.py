"""A torch whose allocator is a list: what `gpuwhy run --pytorch memory` uses of PyTorch, for tests without a GPU. Blocks
have the Python frames of their allocation, as PyTorch's snapshot has them while the history is recorded."""

import ctypes
import os
import sys
import types

SEGMENT = 1 << 40


def module(name, **contents):
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(contents)
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, made)
    return made


class Tensor:
    is_cuda = is_leaf = True

    def __init__(self, megabytes, grad=None):
        self.address, self.grad = allocator.take(megabytes << 20), grad

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.address)

    def __del__(self):
        allocator.blocks[self.address]["state"] = "inactive"


class Allocator:
    """`torch.cuda`, with its `memory`. Freed blocks stay as gaps."""

    def __init__(self):
        self.blocks, self.end, self.observers, self.calls = {}, SEGMENT, [], []
        self.history, self.peak = os.environ.get("TEST_HISTORY"), 0

    def take(self, size):
        frames, frame = [], sys._getframe(1)
        while frame is not None and self.history:
            code = frame.f_code
            frames.append({"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name})
            frame = frame.f_back
        address, self.end = self.end, self.end + size
        block = {"size": size, "requested_size": size, "state": "active_allocated", "frames": frames, "address": address}
        self.blocks[address] = block
        self.peak = max(self.peak, self.allocated())
        return address

    def allocated(self):
        return sum(block["size"] for block in self.blocks.values() if block["state"] == "active_allocated")

    def snapshot(self, include_traces=True):
        assert include_traces is False
        if os.environ.get("TEST_BROKEN"):
            raise KeyError("broken snapshot")
        blocks = list(self.blocks.values())
        return [{"device": 0, "address": SEGMENT, "total_size": self.end - SEGMENT, "blocks": blocks}]

    def statistics(self, device=None):
        assert device in (None, 0)
        return {"allocated_bytes": {"all": {"current": self.allocated(), "peak": self.peak}}}

    def record(self, enabled="all", context="all", stacks="all"):
        self.calls.append((enabled, context, stacks))
        self.history = enabled

    def initialize(self):
        # As the driver does. Then the recorded work of the GPU.
        ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
        ctypes.CDLL(os.environ["GPUWHY_CUPTI_PATH"]).gpuwhy_replay_play(ctypes.c_uint64(2**64 - 1))
        for call in queued:
            call()

    def run_out(self, asked, free):
        for observe in self.observers:
            observe(0, asked, 80 << 30, free)


class Optimizer:
    def __init__(self, parameters):
        self.param_groups, self.state = [{"params": parameters}], {}

    def step(self):
        for hook in before.values():
            assert hook(self, (), {}) is None
        for one in self.param_groups[0]["params"]:
            self.state.setdefault(one, {"step": 1, "exp_avg": Tensor(2 * one.megabytes)})
        for hook in after.values():
            assert hook(self, (), {}) is None


class Module:
    def __init__(self):
        self._parameters, self._buffers = {}, {}


class Parameter(Tensor):
    def __init__(self, megabytes):
        super().__init__(megabytes)
        self.megabytes = megabytes


def backward(loss, parameters):
    for one in parameters:
        one.grad = one.grad or Tensor(one.megabytes)


class Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


queued, before, after, allocator = [], {}, {}, Allocator()
torch = sys.modules[__name__]
version = types.SimpleNamespace(cuda=os.environ.get("TEST_CUDA", "13.0") or None)
module(
    "torch._C",
    _cuda_isHistoryEnabled=lambda: bool(allocator.history),
    _cuda_attach_out_of_memory_observer=allocator.observers.append,
    DisableTorchFunctionSubclass=Nothing,
)
module(
    "torch.cuda",
    _lazy_call=queued.append,
    current_device=lambda: 0,
    memory_stats_as_nested_dict=allocator.statistics,
)
module("torch.cuda.memory", _record_memory_history=allocator.record, memory_snapshot=allocator.snapshot)
module("torch.autograd", backward=backward)
module("torch.nn", Module=Module, Parameter=Parameter)
module("torch.optim", Optimizer=Optimizer)
module(
    "torch.optim.optimizer",
    register_optimizer_step_pre_hook=lambda hook: before.update({len(before): hook}),
    register_optimizer_step_post_hook=lambda hook: after.update({len(after): hook}),
)
