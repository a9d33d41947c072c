"""Puts PyTorch's blocks of GPU memory into the trace: `gpuwhy run --pytorch memory`. Appended to sitecustomize.py.

Has PyTorch keep the Python stack of each live block (`torch.cuda.memory._record_memory_history("state")`), looks at them
at a new peak, at step ends spread over the run, at out of memory and at the end, and writes sums by line as marks of
libprof.so in the domain `gpuwhy memory`, which `profiler-core/src/memory/blocks.rs` reads.

A peak is searched where the program calls `backward`, and before and after `optimizer.step`. If the program records the
history itself, its settings and snapshots are left alone.
"""

import ctypes
import functools
import gc
import itertools
import threading
import time
import weakref

DOMAIN = b"gpuwhy memory"
# A state is a peak if it has this many times the bytes of its device's highest one before, and more with each: all of
# them are enough for any growth.
PEAK, MORE = 1.01, 0.004
# Most states of peaks, and of out of memory, and rows in each; the other rows become one per class.
PEAKS, TIMES_OUT, ROWS = 64, 16, 512
# Most lines, and bytes of all texts: those of peaks and steps end earlier, so that the end always fits.
SITES, TEXT, LAST_TEXT = 4096, 3 << 20, 4 << 20
# Longest text of a mark, bytes.
LONGEST = 2000
# Step ends that are looked at have twice the number of the last one, and from the first number on this many times.
FIRST_STEPS, SPREAD = 16, 1.05
# Time that all snapshots may take: this many seconds, and this share of the time since the first use of CUDA; as much
# again for those at out of memory and at the end.
FIRST_COST, SHARE = 0.5, 0.01
# Shortest time between two searches for modules and optimizers, and what one takes per object of the program, seconds.
SEARCH_SECONDS, SEARCH_EACH = 10.0, 0.2e-6
# Sites that are no line: blocks without a Python stack, and the sum of what does not fit.
NOWHERE, FURTHER = 0, 1
# Where servers make their KV caches: end of the file, beginning of the function.
KV_CACHES = (
    ("", "initialize_kv_cache"),
    ("", "_allocate_kv_cache"),
    ("/memory_pool.py", ""),
    ("/continuous_batching/cache.py", ""),
)


def complain(error):
    # Instead of that of the ranges.
    say("no memory of PyTorch", error)


def _memory(torch):
    if getattr(torch.version, "cuda", None) is None:
        raise RuntimeError("this PyTorch was built without CUDA")
    blocks = Blocks(torch)
    blocks.watch_history()
    # Recording initializes CUDA, so it waits for the program to do that.
    torch.cuda._lazy_call(lambda: blocks.attempt(blocks.start))


MODES["memory"] = _memory


class Marks:
    """Marks of libprof.so, which the driver has loaded when CUDA is initialized."""

    def __init__(self):
        class Table(ctypes.Structure):
            # SessionFunctions in inject/src/session.rs
            _fields_ = [("size", ctypes.c_size_t)]
            _fields_ += [(name, ctypes.c_void_p) for name in ("begin", "flush", "end", "now", "nvtx")]
            _fields_ += [("domain", ctypes.PYFUNCTYPE(ctypes.c_uint32, ctypes.c_char_p))]
            _fields_ += [(name, ctypes.c_void_p) for name in ("push", "pop", "start", "stop")]
            _fields_ += [("mark", ctypes.PYFUNCTYPE(None, ctypes.c_uint32, ctypes.c_char_p))]

        library = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"], mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        find = library.gpuwhy_session_functions
        find.restype = ctypes.POINTER(Table)
        self.table, self.bytes = find().contents, 0
        self.domain = self.table.domain(DOMAIN)

    def write(self, *parts):
        text = "\t".join(str(part).replace("\t", " ").replace("\0", " ") for part in parts)
        encoded = text.encode("utf-8", "replace")[:LONGEST]
        if self.bytes + len(encoded) <= LAST_TEXT:
            self.bytes += len(encoded)
            self.table.mark(self.domain, encoded)

    def write_rows(self, number, rows):
        """Texts with as many rows as fit into each; a row has numbers and a letter."""
        parts, length = [], 0
        for row in rows:
            part = ":".join(map(str, row))
            if length + len(part) > LONGEST - 100:
                self.write("rows", number, *parts)
                parts, length = [], 0
            parts.append(part)
            length += len(part) + 1
        if parts:
            self.write("rows", number, *parts)


class Blocks:
    """PyTorch's blocks of this process."""

    def __init__(self, torch):
        self.torch, self.marks = torch, None
        # `process` is None while nothing is recorded.
        self.process, self.is_theirs = None, False
        self.busy = threading.Lock()
        self.since = self.spent = self.began = 0.0
        # Of the last snapshot without the search, of all searches, and of the last one for each object.
        self.snapshot_seconds, self.search_seconds, self.search_each = 0.0, 0.0, SEARCH_EACH
        # Number at the last search.
        self.objects = 0
        self.numbers, self.times_out, self.skipped = itertools.count(1), 0, 0
        # Steps of one optimizer, if the program has several.
        self.step, self.next_step, self.optimizer = 0, 1, lambda: None
        # By device.
        self.highest, self.is_inside = {}, False
        # Blocks at the end of a step, the number of this step, and bytes by device and line then.
        self.alive, self.alive_step, self.live = {}, None, {}
        self.sites, self.own = {}, {}
        self.found, self.next_search = ([], []), 0.0
        # Lines there say little of the program.
        self.libraries = tuple(os.path.dirname(os.path.abspath(one.__file__)) + os.sep for one in (torch, os))

    def attempt(self, call, *arguments):
        """Never affects the program: the first failure ends the looks."""
        try:
            call(*arguments)
        except Exception as error:
            self.process = None
            complain(error)
            with contextlib.suppress(Exception):
                if self.marks is not None:
                    self.marks.write("note", f"{type(error).__name__}: {error}"[:500])

    def watch_history(self):
        """Notes that the program records the history itself, which would be the end of ours."""
        memory = self.torch.cuda.memory
        self.record = memory._record_memory_history

        @functools.wraps(self.record)
        def record(*arguments, **named):
            self.attempt(self.leave)
            return self.record(*arguments, **named)

        memory._record_memory_history = record

    def leave(self):
        if self.is_theirs:
            return
        self.is_theirs = True
        if self.process == os.getpid():
            self.tell_theirs()

    def tell_theirs(self):
        self.process = None
        text = "the program records PyTorch's memory history itself"
        say(f"no memory of PyTorch from here on: {text}")
        self.marks.write("note", text)

    def start(self):
        torch = self.torch
        if self.process == os.getpid():
            # An initialization that failed is repeated.
            return
        self.marks = Marks()
        if self.is_theirs or torch._C._cuda_isHistoryEnabled():
            self.is_theirs = True
            self.tell_theirs()
            return
        self.record("state", context="state", stacks="python")
        self.process, self.since = os.getpid(), time.perf_counter()
        torch._C._cuda_attach_out_of_memory_observer(self.out_of_memory)
        self.watch_steps()
        atexit.register(self.end)

    def watch_steps(self):
        torch = self.torch
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        compiler = getattr(torch, "compiler", None) or getattr(torch, "_dynamo", None)
        # Dynamo evaluates it to True, so that compiled programs contain nothing of this file.
        compiling = getattr(compiler, "is_compiling", lambda: False)
        original = torch.autograd.backward

        # Activations are alive only up to here, and PyTorch has no hook for it.
        @functools.wraps(original)
        def backward(*arguments, **named):
            # Within a backward pass, checkpoints run others.
            if compiling() or self.is_inside:
                return original(*arguments, **named)
            self.look("before_backward")
            self.is_inside = True
            try:
                return original(*arguments, **named)
            finally:
                self.is_inside = False

        def before(optimizer, *_):
            if not compiling():
                self.look("before_optimizer_step")

        def after(optimizer, *_):
            if not compiling():
                self.stepped(optimizer)

        with contextlib.suppress(AttributeError):
            # TorchScript knows functions by their identity.
            torch.jit._builtins._register_builtin(backward, "aten::backward")
        torch.autograd.backward = backward
        register_optimizer_step_pre_hook(before)
        register_optimizer_step_post_hook(after)

    def stepped(self, optimizer):
        if self.optimizer() is None:
            self.optimizer = weakref.ref(optimizer)
        if self.optimizer() is optimizer:
            self.step += 1
        self.look("after_optimizer_step", self.optimizer() is optimizer and self.step >= self.next_step)

    def look(self, moment, is_due=False):
        """Writes a state if this moment is a new peak, and what is live if the step `is_due`."""
        self.alone(self.compare, moment, is_due)

    def alone(self, call, *arguments):
        """Attempts it and counts its time, unless a snapshot is being taken."""
        if self.process != os.getpid() or not self.busy.acquire(False):
            return
        self.began = time.perf_counter()
        try:
            self.attempt(call, *arguments)
        finally:
            self.spent += time.perf_counter() - self.began
            self.busy.release()

    def can_take(self, seconds, is_last=False):
        """True if the snapshots so far and these seconds are within the limit."""
        now = time.perf_counter()
        return self.spent + now - self.began + seconds <= (1 + is_last) * (FIRST_COST + SHARE * (now - self.since))

    def compare(self, moment, is_due):
        if not self.can_take(0) or self.marks.bytes > TEXT:
            self.skipped += 1
            return
        self.highest.setdefault(self.torch.cuda.current_device(), Highest())
        # The blocks of this step are known.
        is_split = moment == "before_backward" and self.alive_step == self.step
        now = {device: self.allocated(device)["current"] for device in self.highest}
        peaks = [device for device, highest in self.highest.items() if highest.is_peak(now[device], is_split)]
        if not peaks and not is_due:
            return
        if not self.can_take(self.snapshot_seconds):
            self.skipped += 1
            return
        began = time.perf_counter() - self.search_seconds
        segments = self.segments()
        for segment in segments:
            self.highest.setdefault(segment["device"], Highest())
        if peaks:
            for device in peaks:
                self.highest[device].note(now[device], is_split)
            if moment == "before_backward" and not is_split:
                # So that the blocks of the next step are.
                self.next_step = min(self.next_step, self.step + 1)
            self.state(moment, segments, peaks)
        if is_due:
            self.next_step = max(self.step + 1, int(self.step * (SPREAD if self.step >= FIRST_STEPS else 2)))
            self.write_live(segments)
        self.snapshot_seconds = time.perf_counter() - self.search_seconds - began

    def allocated(self, device):
        return self.torch.cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]

    def segments(self):
        try:
            return self.torch.cuda.memory.memory_snapshot(include_traces=False)
        except TypeError:
            # Versions without it keep one trace here.
            return self.torch.cuda.memory.memory_snapshot()

    def out_of_memory(self, device, asked, _, free):
        """PyTorch calls it on the thread that asked, before it raises."""
        self.alone(self.tell_out_of_memory, device, asked, free)

    def tell_out_of_memory(self, device, asked, free):
        frame, frames = sys._getframe(), []
        while frame is not None:
            code = frame.f_code
            name = getattr(code, "co_qualname", code.co_name)
            frames.append({"filename": code.co_filename, "line": frame.f_lineno, "name": name})
            frame = frame.f_back
        number = 0
        if self.times_out < TIMES_OUT and self.can_take(self.snapshot_seconds, True):
            self.times_out += 1
            number = self.state("out_of_memory", self.segments(), [device])
        self.marks.write("oom", number, device, asked, free, self.site(frames), self.step)

    def end(self):
        self.alone(self.tell_end)

    def tell_end(self):
        if self.can_take(self.snapshot_seconds, True):
            self.state("end", self.segments())
        else:
            self.skipped += 1
        spent = self.spent + time.perf_counter() - self.began
        self.marks.write("end", self.step, self.skipped, round(spent * 1e9))

    def state(self, moment, segments, only=None):
        """Writes the blocks of each device by class and line. Returns the number of the last one."""
        owners, number = self.owners(moment in ("out_of_memory", "end")), 0
        for device, blocks in sorted(by_device(segments).items()):
            if only is not None and device not in only:
                continue
            rows, gaps = {}, [block["size"] for _, block in blocks if block["state"] == "inactive"]
            for address, block in blocks:
                if block["state"] != "inactive":
                    key, size = self.kind(moment, owners, address, block), block["size"]
                    before = rows.get(key, (0, 0))
                    rows[key] = (before[0] + size, before[1] + 1)
            allocated = sum(size for (kind, _), (size, _) in rows.items() if kind != "w")
            reserved = sum(block["size"] for _, block in blocks)
            is_expandable = any(segment.get("is_expandable") for segment in segments if segment["device"] == device)
            kept = shortened(rows)
            number = next(self.numbers)
            free, peak = (sum(gaps), max(gaps, default=0)), self.allocated(device)["peak"]
            head = (number, moment, self.step, device, allocated, reserved, *free, peak, int(is_expandable))
            self.marks.write("state", *head)
            self.marks.write_rows(number, kept)
        return number

    def kind(self, moment, owners, address, block):
        """Class of a block in use, and its line."""
        site, is_cache = self.site_of(block)
        if block["state"] != "active_allocated":
            return "w", site
        if address in owners:
            return owners[address], site
        # With the blocks of an older step, it may also have come in a step between.
        is_known = self.alive_step == self.step and moment in ("before_backward", "out_of_memory")
        is_new = is_known and self.alive.get(address) != (block["size"], site)
        return "k" if is_cache else "a" if is_new else "x", site

    def write_live(self, segments):
        """Writes what changed by line since the last such step end, and remembers the blocks."""
        alive, live = {}, {}
        for device, blocks in by_device(segments).items():
            for address, block in blocks:
                if block["state"] == "active_allocated":
                    site, _ = self.site_of(block)
                    alive[address] = (block["size"], site)
                    live[device, site] = live.get((device, site), 0) + block["size"]
        changed = [(*key, live.get(key, 0)) for key in {**self.live, **live} if self.live.get(key, 0) != live.get(key, 0)]
        number = next(self.numbers)
        self.marks.write("live", number, self.step, len(changed))
        self.marks.write_rows(number, changed)
        self.alive, self.alive_step, self.live = alive, self.step, live

    def site_of(self, block):
        frames = block.get("frames")
        if frames is None:
            # Before PyTorch 2.2
            frames = [frame for part in block.get("history", ())[-1:] for frame in part.get("frames", ())]
        return self.site(frames), self.is_kv_cache(frames)

    def outside(self, frames):
        """The innermost frame outside PyTorch, else the innermost one."""
        for frame in frames:
            file = frame["filename"]
            is_own = self.own.get(file)
            if is_own is None:
                torch, python = self.libraries
                inside = file.startswith((torch, "<frozen")) or "/torchinductor_" in file or file == __file__
                inside |= file.startswith(python) and "-packages" + os.sep not in file
                is_own = self.own[file] = not inside
            if is_own:
                return frame
        return frames[0] if frames else None

    def is_kv_cache(self, frames):
        frame = self.outside(frames)
        if frame is None:
            return False
        file, name = frame["filename"], frame["name"].rpartition(".")[2]
        return any(file.endswith(end) and name.startswith(begin) for end, begin in KV_CACHES)

    def site(self, frames):
        """Number of the line, which is written before its first use."""
        frame = self.outside(frames)
        if frame is None:
            return NOWHERE
        key = (frame["filename"], frame["line"], frame["name"])
        number = self.sites.get(key)
        if number is None:
            if len(self.sites) == SITES:
                return FURTHER
            number = self.sites[key] = len(self.sites) + FURTHER + 1
            file, line, name = key
            self.marks.write("site", number, line, name[:200], file[-1000:])
        return number

    def holders(self, is_last):
        """Modules and optimizers. They are searched among all objects, so that nothing has to follow them while the program
        runs; not again within some seconds, unless this look may be the last one, and not if it would take too long."""
        began = time.perf_counter()
        if (is_last or began > self.next_search) and self.can_take(self.search_each * self.objects, is_last):
            self.next_search, objects = began + SEARCH_SECONDS, gc.get_objects()
            self.objects = len(objects)
            if self.can_take(self.search_each * self.objects, is_last):
                self.search(objects)
                self.search_each = max(SEARCH_EACH, (time.perf_counter() - began) / self.objects)
            self.search_seconds += time.perf_counter() - began
        return [[thing for thing in (one() for one in found) if thing is not None] for found in self.found]

    def search(self, objects):
        self.found, kinds = ([], []), {}
        roles = (self.torch.nn.Module, self.torch.optim.Optimizer)
        for thing in objects:
            kind = type(thing)
            # With the type, so that no other one gets its id.
            role, _ = kinds.get(id(kind), (None, kind))
            if role is None:
                mro = kind.__mro__
                role = next((at for at, base in enumerate(roles) if any(base is one for one in mro)), -1)
                kinds[id(kind)] = role, kind
            if role >= 0:
                self.found[role].append(weakref.ref(thing))

    def owners(self, is_last):
        """Class by address of the tensors that modules and optimizers hold."""
        torch, (modules, optimizers) = self.torch, self.holders(is_last)
        classes = {}

        def add(kind, tensor):
            if isinstance(tensor, torch.Tensor):
                # That of this rank, if it is a part of a larger one.
                tensor = getattr(tensor, "_local_tensor", tensor)
                # Some have no storage, and those of the compiler would warn.
                with contextlib.suppress(Exception):
                    if tensor.is_cuda and not type(tensor).__module__.startswith("torch._subclasses"):
                        classes.setdefault(tensor.untyped_storage().data_ptr(), kind)
            elif isinstance(tensor, (list, tuple)):
                for one in tensor:
                    add(kind, one)

        # Tensors of other types must not run their own code here.
        with torch._C.DisableTorchFunctionSubclass():
            parameters = [one for module in modules for one in list(vars(module).get("_parameters", {}).values())]
            groups = [group for optimizer in optimizers for group in list(vars(optimizer).get("param_groups", ()))]
            parameters += [one for group in groups for one in list(group["params"])]
            for one in parameters:
                add("p", one)
            for one in parameters:
                if one is not None and one.is_leaf:
                    add("g", one.grad)
            for optimizer in optimizers:
                for state in list(vars(optimizer).get("state", {}).values()):
                    for one in list(state.values()) if isinstance(state, dict) else ():
                        add("o", one)
            for module in modules:
                for one in list(vars(module).get("_buffers", {}).values()):
                    add("b", one)
        # Address of an empty tensor.
        classes.pop(0, None)
        return classes


class Highest:
    """The highest state of a device, bytes, and whether it was told what its step had added."""

    def __init__(self):
        self.bytes, self.peaks, self.is_split = 0, 0, False

    def is_higher(self, now):
        return self.peaks < PEAKS and now > (PEAK + MORE * self.peaks) * self.bytes

    def is_peak(self, now, is_split):
        return self.is_higher(now) or (is_split and not self.is_split and PEAK * now > self.bytes)

    def note(self, now, is_split):
        self.peaks += self.is_higher(now)
        self.bytes, self.is_split = max(now, self.bytes), is_split


def shortened(rows):
    """The largest rows, and the sum of the others by class."""
    sorted_rows, others = sorted(rows.items(), key=lambda row: -row[1][0]), {}
    for (kind, _), (size, count) in sorted_rows[ROWS:]:
        before = others.get(kind, (0, 0))
        others[kind] = (before[0] + size, before[1] + count)
    kept = [(*key, *sums) for key, sums in sorted_rows[:ROWS]]
    return kept + [(kind, FURTHER, *sums) for kind, sums in others.items()]


def by_device(segments):
    """Blocks with their addresses, by device."""
    devices = {}
    for segment in segments:
        blocks, address = devices.setdefault(segment["device"], []), segment["address"]
        for block in segment["blocks"]:
            # Versions before 2.2 do not write it.
            blocks.append((block.get("address", address), block))
            address += block["size"]
    return devices
