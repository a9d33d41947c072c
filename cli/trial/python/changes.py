# The remedies of `gpuwhy try` that are changes of Python or PyTorch within the program. Appended to steps.py.
#
# Each is called with torch and the run once torch is imported, or at the start with None, and notes with `run.applies` that
# it found something to change.


def apply(torch, run):
    """Applies the remedies: with torch what changes it, and without it what changes Python."""
    for remedy in run.settings["remedies"]:
        change = (AT_START if torch is None else CHANGES).get(remedy)
        if change is not None:
            run.attempt(remedy, lambda: change(torch, run))
    if torch is None:
        return
    for remedy in SET_BY_VARIABLES.keys() & run.settings["remedies"]:
        run.edits[remedy] = after_import(SET_BY_VARIABLES[remedy])
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
    last, compiling, original = torch.channels_last, is_compiling(torch), torch.nn.Conv2d.forward

    def lay_out(convolution):
        """Changes its weights, once; true the first time."""
        if convolution.__dict__.get("_gpuwhy_channels_last"):
            return False
        weight = getattr(convolution, "weight", None)
        if isinstance(weight, torch.Tensor) and weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=last)
        convolution.__dict__["_gpuwhy_channels_last"] = True
        return True

    @functools.wraps(original)
    def forward(self, input):
        # Images without a dimension for the batch have no such layout.
        if input.dim() != 4:
            return original(self, input)
        if not compiling() and lay_out(self):
            run.applies("channels_last")
        return original(self, input.contiguous(memory_format=last))

    torch.nn.Conv2d.forward = forward
    convolves = weakref.WeakKeyDictionary()

    def images(arguments, named):
        """Changes the images among the arguments; false without any."""
        found = False
        for held, places in ((arguments, range(len(arguments))), (named, list(named))):
            for place in places:
                if isinstance(held[place], torch.Tensor) and held[place].dim() == 4:
                    held[place], found = held[place].contiguous(memory_format=last), True
        return found

    # The sum of a residual connection has the layout of its input, so the images themselves are changed too.
    def called(module, arguments, named):
        if module not in convolves:
            convolves[module] = any(isinstance(part, torch.nn.Conv2d) for part in module.modules())
        if convolves[module] and images(arguments, named) and is_compiled(module):
            # Within it, `forward` cannot tell that it ran.
            run.applies("channels_last")

    on_outermost_call(torch, run, called, before=True)
    make = getattr(torch, "compile", None)
    if make is None:
        return

    @functools.wraps(make)
    def compiled(model=None, *arguments, **named):
        made = make(model, *arguments, **named)
        # Without a model it is a decorator, which calls torch.compile again. Modules are called above.
        if model is None or isinstance(model, torch.nn.Module) or getattr(model, "__name__", None) == "_call_impl":
            return made
        convolutions = None

        @functools.wraps(made)
        def call(*arguments, **named):
            nonlocal convolutions
            if compiling():
                return made(*arguments, **named)
            if convolutions is None:
                # What a compiled function calls cannot be seen: these are those of the program.
                import gc

                convolutions = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Conv2d)]
                for one in convolutions:
                    # Lazy ones have no weights yet.
                    with contextlib.suppress(ValueError):
                        lay_out(one)
            arguments = list(arguments)
            if images(arguments, named) and convolutions:
                run.applies("channels_last")
            return made(*arguments, **named)

        return call

    torch.compile = compiled


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


def _optimizer(torch, run, remedy, argument, classes):
    import inspect

    def changed(optimizer):
        original = optimizer.__init__
        signature = inspect.signature(original)
        if argument not in signature.parameters:
            return

        @functools.wraps(original)
        def init(self, params, *arguments, **named):
            params = _listed(params)
            bound = signature.bind(self, params, *arguments, **named)
            given = bound.arguments
            chosen = any(given.get(name) for name in ("foreach", "fused", "differentiable"))
            # What the program turned off it has reasons for, but only of foreach there is a default.
            chosen = chosen or (given.get(argument) is False) == (argument == "fused")
            own_step = inspect.unwrap(type(self).step) is not inspect.unwrap(optimizer.step)
            if chosen or own_step or not _all_on_gpu(params):
                return original(self, params, *arguments, **named)
            try:
                given[argument] = True
                original(*bound.args, **bound.kwargs)
            except (RuntimeError, TypeError, ValueError):
                # This optimizer or this version has no such form for these parameters.
                return original(self, params, *arguments, **named)
            run.applies(remedy, in_call(sys._getframe(1), optimizer.__name__, {argument: "True"}))

        optimizer.__init__ = init

    for optimizer in classes:
        changed(optimizer)


def _fused_optimizer(torch, run):
    named = [getattr(torch.optim, name, None) for name in ("SGD", "Adagrad", "Adam", "AdamW")]
    _optimizer(torch, run, "fused_optimizer", "fused", [optimizer for optimizer in named if optimizer is not None])


def _foreach_optimizer(torch, run):
    base = torch.optim.Optimizer
    all_of = [one for one in vars(torch.optim).values() if isinstance(one, type) and issubclass(one, base) and one is not base]
    _optimizer(torch, run, "foreach_optimizer", "foreach", all_of)


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


def _non_blocking(torch, run):
    _copies_do_not_wait(torch, run, "non_blocking")


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
        # Python before 3.7 has none.
        getattr(gc, "freeze", lambda: None)()
        gc.disable()
        run.applies("gc")

    if run.is_counted:
        run.first.append(off)
        return
    # Without steps: at the end of the first collection with CUDA. gc.collect() of the program still collects: for as
    # long as a start-up may last, what it leaves is frozen, too.
    since, next_look = None, 0.0

    def collected(phase, _):
        nonlocal since, next_look
        now = time.monotonic()
        if since is None and phase == "stop" and now >= next_look:
            since = now if uses_cuda() else None
            next_look = now + 50 * (time.monotonic() - now)
        if phase == "stop" and since is not None and now - since <= run.settings["warm_s"]:
            off()

    gc.callbacks.append(collected)


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


def is_compiled(module):
    return type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None


def _compile(torch, run, remedy="compile", **options):
    # Both remedies are one call: the later one adds its options.
    run.compile.update(options)
    run.compilers.append(remedy)
    if len(run.compilers) > 1:
        return
    seen = weakref.WeakSet()

    def called(module, arguments, named):
        if module in seen or len(seen) >= 4 or is_compiled(module):
            return
        # Losses of PyTorch and transforms on the CPU are modules too.
        own = not type(module).__module__.startswith("torch.")
        tensors = [held for held in (*arguments, *named.values()) if isinstance(held, torch.Tensor)]
        on_gpu = any(parameter.is_cuda for parameter in module.parameters())
        if not on_gpu and not (own and any(tensor.is_cuda for tensor in tensors)):
            return
        seen.add(module)
        if hasattr(module, "_compiled_call_impl"):
            # As Module.compile, whose copies do not have it, either; but that compiles no module of a class of PyTorch,
            # such as Sequential: the compiler passes over PyTorch's own code unless code elsewhere calls it.
            def whole(*arguments, **named):
                return module._call_impl(*arguments, **named)

            module._compiled_call_impl = torch.compile(whole, **run.compile)
        else:
            module.forward = torch.compile(module.forward, **run.compile)
        for one in run.compilers:
            run.applies(one)

    on_outermost_call(torch, run, called, before=True)


def _compile_graphs(torch, run):
    _compile(torch, run, "compile_graphs", mode="reduce-overhead")


def _compile_dynamic(torch, run):
    original = torch.compile

    @functools.wraps(original)
    def compiled(*arguments, **named):
        if named.get("dynamic") is None:
            named["dynamic"] = True
            run.applies("compile_dynamic", in_call(sys._getframe(1), "compile", {"dynamic": "True"}))
        return original(*arguments, **named)

    torch.compile = compiled


def _graphed_module(torch, run):
    # Beside the modules: a copy of one has weights of its own.
    graphs = weakref.WeakKeyDictionary()

    def kinds(tensors):
        return [(tensor.shape, tensor.dtype, tensor.requires_grad) for tensor in tensors]

    def called(module, arguments, named):
        if module in graphs:
            graphed, wanted = graphs[module] or (None, None)
            is_same = not named and all(isinstance(held, torch.Tensor) for held in arguments) and kinds(arguments) == wanted
            return during(module, graphed) if is_same else None
        is_trained = module.training and torch.is_grad_enabled() and any(one.requires_grad for one in module.parameters())
        on_gpu = all(isinstance(held, torch.Tensor) and held.is_cuda for held in arguments)
        if not is_trained or named or not arguments or not on_gpu:
            return None
        graphs[module] = None
        restore, wanted = during(module, module.forward), kinds(arguments)
        # The calls before the capture change statistics and random numbers.
        buffers, random = [(held, held.clone()) for held in module.buffers()], torch.cuda.get_rng_state()
        samples = tuple(held.detach().clone().requires_grad_(held.requires_grad) for held in arguments)
        try:
            torch.cuda.make_graphed_callables(module, samples, allow_unused_input=True)
            graphs[module] = module.forward, wanted
        except Exception as error:
            restore()
            run.errors["graphed_module"] = f"{type(error).__name__}: {error}"
            complain(error)
            return None
        finally:
            with torch.no_grad():
                for held, before in buffers:
                    held.copy_(before)
            torch.cuda.set_rng_state(random)
        run.applies("graphed_module")
        return restore

    def during(module, forward):
        """Gives the module another `forward`, and returns what takes it back."""
        own = vars(module)
        before = {name: own[name] for name in ("forward",) if name in own}
        own["forward"] = forward

        def restore():
            own.pop("forward", None)
            own.update(before)

        return restore

    on_outermost_call(torch, run, called, before=True)


# Names in code that computes gradients, or that has a library do it.
GRADIENTS = frozenset(["backward", "grad", "vjp", "jvp", "jacrev", "jacfwd", "jacobian", "hessian", "optim", "Trainer", "fit"])


def _no_grad(torch, run):
    compiling, original = is_compiling(torch), torch.nn.Module.__call__
    looked = [0, False]

    def may_train():
        # Modules that are imported later may.
        if not looked[1] and looked[0] != len(sys.modules):
            looked[:] = len(sys.modules), trains(sys._getframe(1), GRADIENTS, everywhere=True)
        return looked[1]

    @functools.wraps(original)
    def call(self, *arguments, **named):
        if compiling() or not torch.is_grad_enabled():
            return original(self, *arguments, **named)
        if run.has_optimizer or may_train():
            return original(self, *arguments, **named)
        run.applies("no_grad")
        with torch.inference_mode():
            return original(self, *arguments, **named)

    torch.nn.Module.__call__ = call


def _deterministic(torch, run):
    original = torch.use_deterministic_algorithms

    @functools.wraps(original)
    def use(mode, **named):
        original(mode, **named)
        if mode and getattr(torch.utils.deterministic, "fill_uninitialized_memory", False):
            line = "torch.utils.deterministic.fill_uninitialized_memory = False"
            torch.utils.deterministic.fill_uninitialized_memory = False
            run.applies("deterministic", after_import(line))

    torch.use_deterministic_algorithms = use


def _timer_sync(torch, run):
    original, own = torch.cuda.synchronize, os.path.dirname(torch.__file__) + os.sep

    @functools.wraps(original)
    def synchronize(device=None):
        # PyTorch itself needs its waits.
        if sys._getframe(1).f_code.co_filename.startswith(own):
            original(device)
        else:
            run.applies("timer_sync")

    torch.cuda.synchronize = synchronize


def _zero_grad(torch, run):
    def changed(owner):
        original = owner.zero_grad

        @functools.wraps(original)
        def zero_grad(self, set_to_none=True):
            if not set_to_none:
                run.applies("zero_grad")
            return original(self, set_to_none=True)

        owner.zero_grad = zero_grad

    changed(torch.optim.Optimizer)
    changed(torch.nn.Module)


def _tensor_batches(torch, run):
    from torch.utils.data._utils import collate, fetch

    data, original = torch.utils.data, fetch._MapDatasetFetcher.fetch

    def within(dataset, indices):
        if type(dataset) is data.Subset:
            return within(dataset.dataset, [dataset.indices[at] for at in indices])
        return (dataset.tensors if type(dataset) is data.TensorDataset else None), indices

    @functools.wraps(original)
    def fetched(self, indices):
        if self.auto_collation and self.collate_fn is collate.default_collate:
            tensors, places = within(self.dataset, indices)
            if tensors is not None:
                run.applies("tensor_batches")
                # Samplers may give tensors, which select other things.
                places = [int(place) for place in places]
                return [tensor[places] for tensor in tensors]
        return original(self, indices)

    fetch._MapDatasetFetcher.fetch = fetched


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

    behind("transformers.modeling_utils", imported)


def _kv_cat(torch, run):
    def imported(generation):
        original = generation.GenerationMixin.generate

        @functools.wraps(original)
        def generate(self, *arguments, **named):
            config = named.get("generation_config") or getattr(self, "generation_config", None)
            chosen = [named.get(name) for name in ("past_key_values", "cache_implementation")]
            chosen.append(getattr(config, "cache_implementation", None))
            if all(one is None for one in chosen) and named.get("use_cache") is not False:
                named["cache_implementation"] = "static"
                run.applies("kv_cat", in_call(sys._getframe(1), "generate", {"cache_implementation": '"static"'}))
            return original(self, *arguments, **named)

        generation.GenerationMixin.generate = generate

    behind("transformers.generation.utils", imported)


def _xla(remedy, flag):
    name = flag.partition("=")[0]

    def change(_, run):
        old = os.environ.get("XLA_FLAGS", "")
        # XLA ends the program at a flag that it does not know.
        if name not in old and _is_in_xla(name.strip("-").encode()):
            os.environ["XLA_FLAGS"] = f"{old} {flag}".strip()
            behind("jax", lambda jax: run.applies(remedy))

    return change


def _is_in_xla(name):
    import mmap

    for package in ("jaxlib", "jax_plugins"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            for place, _, files in os.walk(folder):
                for file in files:
                    if file.endswith(".so") and os.path.getsize(os.path.join(place, file)):
                        with open(os.path.join(place, file), "rb") as library:
                            with mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ) as text:
                                if text.find(name) >= 0:
                                    return True
    return False


LOADER = {"workers", "more_workers", "loader_prefetch", "loader_io", "persistent", "pinned"}
SET_BY_VARIABLES = {"tf32_matmul": 'torch.set_float32_matmul_precision("high")'}
AT_START = {
    "gc": _gc,
    "xla_overlap": _xla("xla_overlap", "--xla_gpu_enable_latency_hiding_scheduler=true"),
    "xla_triton": _xla("xla_triton", "--xla_gpu_triton_gemm_any=true"),
}
CHANGES = {
    "bf16": _bf16,
    "channels_last": _channels_last,
    "cudnn_search": _cudnn(True),
    "cudnn_no_search": _cudnn(False),
    "attention_build": _attention_build,
    "fused_optimizer": _fused_optimizer,
    "empty_cache": _empty_cache,
    "anomaly": _anomaly,
    "launch_blocking": _launch_blocking,
    "compile": _compile,
    "compile_graphs": _compile_graphs,
    "compile_dynamic": _compile_dynamic,
    "graphed_module": _graphed_module,
    "no_grad": _no_grad,
    "deterministic": _deterministic,
    "timer_sync": _timer_sync,
    "zero_grad": _zero_grad,
    "foreach_optimizer": _foreach_optimizer,
    "non_blocking": _non_blocking,
    "tensor_batches": _tensor_batches,
    "sdpa": _sdpa,
    "kv_cat": _kv_cat,
}
