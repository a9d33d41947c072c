# The remedies of `gpuwhy try` that are changes of PyTorch within the program. Appended to steps.py.
#
# Each is called with torch and the run once torch is imported, and notes with `run.applies` that it found something to
# change.


def apply(remedy, torch, run):
    """Applies the remedy of this name; those of the loader are applied together by `finish_remedies`."""
    change = CHANGES.get(remedy)
    if change is not None:
        change(torch, run)


def finish_remedies(torch, run):
    if LOADER.intersection(run.settings["remedies"]):
        run.attempt("loader", lambda: _loader(torch, run))


def _bf16(torch, run):
    if hasattr(torch, "set_autocast_dtype"):
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        torch.set_autocast_enabled("cuda", True)
    else:
        torch.set_autocast_gpu_dtype(torch.bfloat16)
        torch.set_autocast_enabled(True)
    # The end of an autocast region would clear the converted weights. This region has no end.
    torch.set_autocast_cache_enabled(False)
    run.applies("bf16")

    def without(original):
        @functools.wraps(original)
        def call(*arguments, **named):
            region = torch.autocast("cuda", enabled=False)
            enter(region)
            try:
                return original(*arguments, **named)
            finally:
                region.__exit__(None, None, None)

        return call

    # Many programs have a switch, `autocast(..., enabled=False)` around the call of the model. Within a module such a
    # region keeps single precision for good reasons.
    enter, call = torch.autocast.__enter__, torch.nn.Module._call_impl.__code__

    @functools.wraps(enter)
    def entered(self):
        if self.device == "cuda" and not self._enabled and not _is_within(call):
            self._enabled, self.fast_dtype = True, torch.bfloat16
        return enter(self)

    torch.autocast.__enter__ = entered

    # As in programs with autocast around the forward pass alone.
    torch.autograd.backward = without(torch.autograd.backward)
    torch.autograd.grad = without(torch.autograd.grad)


def _is_within(code):
    frame = sys._getframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _channels_last(torch, run):
    last, compiling = torch.channels_last, is_compiling(torch)
    original, make = torch.nn.Conv2d.forward, torch.nn.Conv2d.__init__

    # Within a compiled model, `forward` cannot tell that it ran.
    @functools.wraps(make)
    def init(self, *arguments, **named):
        make(self, *arguments, **named)
        run.applies("channels_last")

    torch.nn.Conv2d.__init__ = init

    @functools.wraps(original)
    def forward(self, input):
        if compiling():
            return original(self, input.contiguous(memory_format=last))
        if not self.__dict__.get("_gpuwhy_channels_last"):
            self.__dict__["_gpuwhy_channels_last"] = True
            if isinstance(getattr(self, "weight", None), torch.Tensor) and self.weight.dim() == 4:
                self.weight.data = self.weight.data.contiguous(memory_format=last)
            run.applies("channels_last")
        return original(self, input.contiguous(memory_format=last) if input.dim() == 4 else input)

    torch.nn.Conv2d.forward = forward
    convolves = weakref.WeakKeyDictionary()

    # The sum of a residual connection has the layout of its input, so the images themselves are changed too.
    def called(module, arguments, named):
        if module not in convolves:
            convolves[module] = any(isinstance(part, torch.nn.Conv2d) for part in module.modules())
        if convolves[module]:
            for held, places in ((arguments, range(len(arguments))), (named, list(named))):
                for place in places:
                    if isinstance(held[place], torch.Tensor) and held[place].dim() == 4:
                        held[place] = held[place].contiguous(memory_format=last)

    on_outermost_call(torch, run, called, before=True)


def _cudnn(search):
    remedy = "cudnn_search" if search else "cudnn_no_search"

    def change(torch, run):
        def set_benchmark(_, value):
            if bool(value) != search:
                run.applies(remedy)

        if search and not torch.backends.cudnn.benchmark:
            run.applies(remedy, after_import("torch.backends.cudnn.benchmark = True"))
        elif not search and torch.backends.cudnn.benchmark:
            run.applies(remedy)
        torch.backends.cudnn.benchmark = search
        # The program's own setting no longer counts.
        type(torch.backends.cudnn).benchmark = property(lambda _: search, set_benchmark)

    return change


def _attention_build(torch, run):
    turn = getattr(torch._C, "_set_sdp_use_cudnn", None)
    if turn is None:
        return
    if torch._C._get_cudnn_sdp_enabled():
        run.applies("attention_build", after_import("torch.backends.cuda.enable_cudnn_sdp(False)"))
    turn(False)
    torch.backends.cuda.enable_cudnn_sdp = lambda enabled: run.applies("attention_build") if enabled else None


def _fused_optimizer(torch, run):
    import inspect

    def fused(optimizer):
        original = optimizer.__init__
        signature = inspect.signature(original)
        if "fused" not in signature.parameters:
            return

        @functools.wraps(original)
        def init(self, params, *arguments, **named):
            params = _listed(params)
            bound = signature.bind(self, params, *arguments, **named)
            given = bound.arguments
            chosen = any(given.get(name) for name in ("foreach", "fused", "differentiable")) or given.get("fused") is False
            own_step = inspect.unwrap(type(self).step) is not inspect.unwrap(optimizer.step)
            if chosen or own_step or not _all_on_gpu(params):
                return original(self, params, *arguments, **named)
            try:
                given["fused"] = True
                original(*bound.args, **bound.kwargs)
            except (RuntimeError, TypeError, ValueError):
                # This optimizer or this version has no fused form for these parameters.
                return original(self, params, *arguments, **named)
            run.applies("fused_optimizer", in_call(sys._getframe(1), optimizer.__name__, {"fused": "True"}))

        optimizer.__init__ = init

    for name in ("SGD", "Adagrad", "Adam", "AdamW"):
        if hasattr(torch.optim, name):
            fused(getattr(torch.optim, name))


def _listed(params):
    """The parameters, which may be generators, as lists."""
    if isinstance(params, dict) or hasattr(params, "dim"):
        return params
    params = list(params)
    for group in params:
        if isinstance(group, dict) and not hasattr(group.get("params"), "dim"):
            group["params"] = list(group.get("params", ()))
    return params


def _all_on_gpu(params):
    tensors = []
    for item in [params] if isinstance(params, dict) or hasattr(params, "dim") else params:
        if isinstance(item, dict):
            held = item.get("params", ())
            tensors.extend([held] if hasattr(held, "dim") else held)
        else:
            # Named parameters are pairs.
            tensors.append(item[1] if isinstance(item, tuple) else item)
    return bool(tensors) and all(tensor.is_cuda and tensor.is_floating_point() for tensor in tensors)


def _loader(torch, run):
    """All remedies of the data loader in one change, in the order in which they build on each other."""
    import inspect

    wanted = LOADER.intersection(run.settings["remedies"])
    loader = torch.utils.data.DataLoader
    original = loader.__init__
    signature = inspect.signature(original)
    cores = len(os.sched_getaffinity(0))

    @functools.wraps(original)
    def init(self, *arguments, **named):
        bound = signature.bind(self, *arguments, **named)
        given = bound.arguments
        workers = given.get("num_workers") or 0
        # Each worker would read all of such a data set.
        divisible = not isinstance(given.get("dataset"), torch.utils.data.IterableDataset)
        changed = {}

        def change(remedy, name, value):
            if given.get(name) != value:
                given[name] = value
                changed.setdefault(remedy, {})[name] = repr(value)

        for remedy in wanted & {"workers", "loader_io"}:
            if workers == 0 and divisible and cores > 1:
                change(remedy, "num_workers", min(8, cores - 1))
                change(remedy, "persistent_workers", True)
        for remedy in wanted & {"more_workers", "loader_io"}:
            if workers and divisible:
                change(remedy, "num_workers", max(workers, min(2 * workers, cores)))
        if given.get("num_workers"):
            for remedy in wanted & {"loader_prefetch", "loader_io"}:
                change(remedy, "prefetch_factor", 8)
            for remedy in wanted & {"persistent"}:
                change(remedy, "persistent_workers", True)
        if "pinned" in wanted and torch.cuda.is_available():
            change("pinned", "pin_memory", True)
        for remedy, arguments in changed.items():
            run.applies(remedy, in_call(sys._getframe(1), "DataLoader", arguments))
        original(*bound.args, **bound.kwargs)

    loader.__init__ = init
    if "pinned" in wanted:
        _copies_do_not_wait(torch, run, "pinned")


def _copies_do_not_wait(torch, run, remedy):
    """Copies from pinned memory to the GPU return at once. Copies to the CPU still wait: their data is read next."""

    def changed(original):
        @functools.wraps(original)
        def copy(self, *arguments, **named):
            # All arguments by position may include non_blocking.
            if "non_blocking" not in named and len(arguments) < 2 and self.device.type == "cpu" and self.is_pinned():
                named["non_blocking"] = True
                run.applies(remedy, in_call(sys._getframe(1), original.__name__, {"non_blocking": "True"}))
            return original(self, *arguments, **named)

        return copy

    torch.Tensor.to = changed(torch.Tensor.to)
    torch.Tensor.cuda = changed(torch.Tensor.cuda)


def _gc(torch, run):
    import gc

    def off():
        gc.freeze()
        gc.disable()
        run.applies("gc")

    run.first.append(off)


def _empty_cache(torch, run):
    def nothing():
        run.applies("empty_cache")

    torch.cuda.empty_cache = nothing
    if hasattr(torch.cuda, "memory"):
        torch.cuda.memory.empty_cache = nothing


def _anomaly(torch, run):
    original = torch.set_anomaly_enabled

    @functools.wraps(original)
    def off(mode, check_nan=True):
        if mode:
            run.applies("anomaly")
        return original(False, check_nan)

    torch.set_anomaly_enabled = off


def _launch_blocking(torch, run):
    # The program may set it after its start, and the driver reads it when CUDA starts.
    if os.environ.pop("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        run.applies("launch_blocking")


def _compile(torch, run):
    seen = weakref.WeakSet()

    def called(module, arguments, named):
        if module in seen or len(seen) >= 4 or type(module).__name__ == "OptimizedModule":
            return
        # Losses of PyTorch and transforms on the CPU are modules too.
        own = not type(module).__module__.startswith("torch.")
        tensors = [held for held in (*arguments, *named.values()) if isinstance(held, torch.Tensor)]
        on_gpu = any(parameter.is_cuda for parameter in module.parameters())
        if not on_gpu and not (own and any(tensor.is_cuda for tensor in tensors)):
            return
        seen.add(module)
        module.forward = torch.compile(module.forward)
        run.applies("compile")

    on_outermost_call(torch, run, called, before=True)


def _sdpa(torch, run):
    def imported(transformers):
        model = transformers.PreTrainedModel
        original = model.__init__

        @functools.wraps(original)
        def init(self, config, *arguments, **named):
            can = getattr(type(self), "_supports_sdpa", False)
            if can and getattr(config, "_attn_implementation", None) == "eager":
                config._attn_implementation = "sdpa"
                run.applies("sdpa")
            return original(self, config, *arguments, **named)

        model.__init__ = init

    if "transformers.modeling_utils" in sys.modules:
        imported(sys.modules["transformers.modeling_utils"])
    else:
        behind("transformers.modeling_utils", imported)


LOADER = {"workers", "more_workers", "loader_prefetch", "loader_io", "persistent", "pinned"}
CHANGES = {
    "bf16": _bf16,
    "channels_last": _channels_last,
    "cudnn_search": _cudnn(True),
    "cudnn_no_search": _cudnn(False),
    "attention_build": _attention_build,
    "fused_optimizer": _fused_optimizer,
    "gc": _gc,
    "empty_cache": _empty_cache,
    "anomaly": _anomaly,
    "launch_blocking": _launch_blocking,
    "compile": _compile,
    "sdpa": _sdpa,
}
