# Passes of loops in the user's own Python code, counted by sys.monitoring (Python 3.12 or later). Appended to steps.py.

# A loop with fewer passes is no loop of steps, and one that covers less of the time with CUDA is only a part of the program.
FEWEST_PASSES, COVERED = 5, 0.6
# Passes between two looks at a loop. One whose passes take less than HOT seconds launches nothing: counting them would cost
# as much as they do. Within a loop of steps, counting may cost a thousandth.
LOOK, HOT, HOT_INSIDE = 64, 5e-6, 2e-4


class Loop(Series):
    """A loop of the user's code."""

    def __init__(self, code, line, header):
        super().__init__()
        self.code, self.line, self.header, self.nth = code, line, header, 0
        self.count = self.frame = self.thread = self.looked = self.cpu = self.process = 0
        # CPU time of each thread at its first pass, the first and the last place in the code, and the loops around it.
        self.start, self.cpus, self.off, self.span, self.around = 0.0, {}, False, [len(code.co_code), 0], set()


class Loops:
    """Counts passes of the loops of this process, and chooses the one whose passes are the steps."""

    def __init__(self, run):
        self.run, self.wanted, self.chosen, self.is_found = run, run.settings["loop"], None, False
        # Whether loops beside the wanted one are counted, in case that it is not there any more.
        self.seeks = self.wanted is None or bool(run.settings.get("patched"))
        self.folder, self.root = run.home, os.path.realpath(run.settings.get("root") or run.home)
        self.changed = {os.path.realpath(file): lines for file, lines in (run.settings.get("changed") or {}).items()}
        # By the identity of a code object, which its loops keep: its loops by the offsets of the jumps back to them.
        self.places, self.files, self.trees, self.all = {}, {}, {}, []
        self.cuda, self.next_search, self.next, self.last = None, 0.0, 0.0, time.perf_counter()
        monitoring = sys.monitoring
        # The identifiers that Python gives to no kind of tool. Debuggers and coverage keep theirs.
        self.tool = next((tool for tool in (4, 3) if monitoring.get_tool(tool) is None), None)
        if self.tool is None:
            return
        monitoring.use_tool_id(self.tool, "gpuwhy")
        monitoring.register_callback(self.tool, monitoring.events.JUMP, self.jumped)
        monitoring.set_events(self.tool, monitoring.events.JUMP)

    def stop(self):
        if self.tool is not None:
            tool, self.tool = self.tool, None
            sys.monitoring.set_events(tool, 0)
            sys.monitoring.register_callback(tool, sys.monitoring.events.JUMP, None)
            sys.monitoring.free_tool_id(tool)

    def jumped(self, code, offset, destination):
        """A jump. Python forgets one for which the answer is DISABLE."""
        if destination > offset:
            return DISABLE
        try:
            loop = (self.places.get(id(code)) or self.found(code)).get(offset)
            if loop is None or loop.off:
                return DISABLE
            frame = sys._getframe(1)
            if id(frame) != loop.frame:
                if is_within(frame, code, loop.frame):
                    # A pass of the same loop in a function that its pass calls.
                    return None
                loop.frame = id(frame)
            now = time.perf_counter()
            loop.count += 1
            if loop.count == 1:
                loop.start = min(self.last, now)
            self.last = now
            if len(loop.times) < MOST:
                loop.times.append(now)
            if now < self.next and loop.count % LOOK and loop.count > LOOK:
                return None
            return self.passed(loop, now, frame)
        except Exception as error:
            self.run.errors["loop"] = f"{type(error).__name__}: {error}"
            self.stop()
        return DISABLE

    def passed(self, loop, now, frame):
        """A pass after which to look. Looking costs time, so not after each of many short ones."""
        if self.cuda is None and not self.has_cuda(now):
            self.next = now + 0.01
            # Without CUDA only what is hot matters.
            return None if self.chosen else self.look(loop, now, frame)
        if self.run.since is None:
            self.run.since = now
        if self.run.unit == "loop":
            self.next = now + 0.001
            self.run.passed(loop, now)
        elif self.look(loop, now, frame) is not None:
            return DISABLE
        elif now >= self.next:
            self.next = now + 0.05
            self.run.judge("loop", loop, now)
        return None

    def choose(self, loop):
        for other in self.all:
            other.off = other is not loop
        self.chosen = loop

    def has_cuda(self, now):
        """True once this process has loaded the CUDA driver's library. Looking takes at most a fiftieth of the time."""
        if now < self.next_search:
            return False
        if uses_cuda():
            self.cuda = now
            if self.seeks and self.chosen is None:
                for loop in self.all:
                    if loop.off:
                        loop.off, loop.count = False, 0
                        del loop.times[:]
                sys.monitoring.restart_events()
            return True
        self.next_search = now + 50 * (time.perf_counter() - now)
        return False

    def look(self, loop, now, frame):
        """Notes the loops around it and the CPU time of its thread, and gives up a loop that is hot."""
        cpu, thread, span = time.thread_time(), threading.get_ident(), loop.span
        used = cpu - loop.cpus.setdefault(thread, cpu)
        if used >= loop.cpu:
            loop.cpu, loop.thread = used, thread
        loop.process = loop.process or time.process_time()
        while frame is not None:
            for other in self.places.get(id(frame.f_code), {}).values():
                if other is not loop and other.span[0] <= span[0] and span[1] <= other.span[1]:
                    loop.around.add(other)
            frame = frame.f_back
            span = frame and (frame.f_lasti, frame.f_lasti)
        if loop.count % LOOK:
            return None
        took, loop.looked = (now - (loop.looked or loop.start)) / LOOK, now
        is_inside = any(len(other.times) >= FEWEST_PASSES for other in loop.around)
        if took > (HOT_INSIDE if is_inside else HOT) and loop.count < MOST:
            return None
        loop.off = True
        del loop.times[:]
        return DISABLE

    def found(self, code):
        """The loops of a code object, by the offsets of the jumps back to them."""
        filename, places = code.co_filename, {}
        if filename not in self.files:
            # A cell of a notebook has the name of a file that is not there, and another in each run.
            is_there = filename.startswith("<") or os.path.exists(os.path.join(self.folder, filename))
            self.files[filename] = own_code(filename) and is_there
        if not self.files[filename]:
            # Each of its jumps comes here once.
            return places
        loops, jumps, lines = {}, {}, [at[0] for at in code.co_positions()]
        text, whiles = self.source(filename)
        for jump in dis.get_instructions(code):
            if jump.opname != "JUMP_BACKWARD":
                continue
            target, source, line = jump.argval, lines[jump.offset // 2], lines[jump.argval // 2]
            is_while = dis.opname[code.co_code[target]] not in ITERATES
            if is_while and source and line:
                line = while_line(whiles, source, line)
            place = jumps[jump.offset] = (line or 0, 0 if is_while else target)
            if place not in loops:
                loops[place] = Loop(code, line or 0, text[line - 1].strip() if line and line <= len(text) else "")
            span = loops[place].span
            span[:] = min(span[0], target), max(span[1], jump.offset)
        seen = {}
        self.all.extend(loops.values())
        for place, loop in sorted(loops.items()):
            loop.nth = seen[loop.header] = seen.get(loop.header, -1) + 1
            if self.wanted is not None and self.is_wanted(loop):
                # A file that is loaded twice has two code objects.
                if self.chosen is None:
                    self.is_found = True
                    self.choose(loop)
                    self.run.settle("loop")
                elif self.is_found:
                    loops[place] = self.chosen
            elif self.chosen is not None or not self.seeks:
                loop.off = True
        if loops:
            self.places[id(code)] = places
        places.update((offset, loops[place]) for offset, place in jumps.items())
        return places

    def source(self, filename):
        """The lines of a file, and its `while` loops: first line, last line of the header, last line."""
        if filename not in self.trees:
            text, whiles = [], []
            with contextlib.suppress(OSError, SyntaxError, ValueError):
                with tokenize.open(os.path.join(self.folder, filename)) as file:
                    whole = file.read()
                text = whole.splitlines()
                loops = (node for node in ast.walk(ast.parse(whole)) if isinstance(node, ast.While))
                whiles = sorted((node.lineno, node.test.end_lineno, node.end_lineno) for node in loops)
            self.trees[filename] = text, whiles
        return self.trees[filename]

    def key(self, loop):
        """What the loop is known by in other runs, where its line may be another, and the copy of the user's tree."""
        file = os.path.realpath(os.path.join(self.folder, loop.code.co_filename))
        relative = os.path.relpath(file, self.root)
        file = file if relative.startswith("../") else relative
        function = loop.code.co_qualname
        return {"file": file, "function": function, "header": loop.header, "nth": loop.nth, "line": loop.line}

    def is_wanted(self, loop):
        key, lines = self.key(loop), self.wanted.get("lines")
        if lines is None:
            return self.wanted == {**key, "line": self.wanted["line"]}
        # Where the user's diff has put the loop, whose header it may have changed.
        return self.wanted["file"] == key["file"] and lines[0] <= loop.line <= lines[1]

    def is_changed(self, loop):
        lines = self.changed.get(os.path.realpath(os.path.join(self.folder, loop.code.co_filename)), ())
        return any(first <= loop.line <= last for first, last in lines)

    def best(self, now, calls, fewest=FEWEST_PASSES):
        """The outermost loop of steps. `calls` are the times of outermost calls of modules: a loop with more passes polls."""
        if self.cuda is None:
            return None
        found = []
        for loop in self.all:
            times = loop.times
            if loop.off or len(times) < fewest or times[-fewest] < self.cuda:
                continue
            if FEWEST_PASSES <= len(calls) - bisect.bisect_left(calls, loop.start) < loop.count:
                continue
            if times[-1] - max(loop.start, self.cuda) >= COVERED * (now - self.cuda):
                found.append(loop)
        # Other threads wait for this one, or poll.
        works = max(found, key=lambda loop: loop.cpu, default=None)
        found = [loop for loop in found if loop.thread == works.thread]
        found = [loop for loop in found if not self.is_changed(loop)] or found
        outer = [loop for loop in found if loop.around.isdisjoint(found)] or found
        best = min(outer, key=lambda loop: loop.count, default=None)
        return None if best is None or polls(best) else best


DISABLE = getattr(getattr(sys, "monitoring", None), "DISABLE", None)
# What a loop over an iterator jumps back to.
ITERATES = ("FOR_ITER", "GET_ANEXT")
# What a loop calls that waits for other threads, and the CPU time of its thread below which it does nothing else: a tenth.
POLLS, BUSY = frozenset(["sleep", "is_alive", "poll", "wait"]), 0.1


def polls(loop):
    """True if the loop only waits for another thread of the process that works."""
    others = time.process_time() - loop.process - loop.cpu
    if loop.cpu >= BUSY * (loop.times[-1] - loop.start) or others <= loop.cpu:
        return False
    first, last = loop.span
    inside = [one for one in dis.get_instructions(loop.code) if first <= one.offset <= last]
    return any(one.argval in POLLS or waits_for_thread(one, following) for one, following in zip(inside, inside[1:]))


def waits_for_thread(name, following):
    """True for `join` without arguments or with a number, which that of strings and paths never gets."""
    is_alone = following.opname.startswith(("CALL", "LOAD_")) and isinstance(following.argval, (int, float))
    return name.argval == "join" and is_alone


def while_line(tree, source, target):
    """First line of the `while` loop with a jump from line `source` back to line `target`, by its header if one is there."""
    inside = [loop for loop in tree if all(loop[0] <= line <= loop[2] for line in (source, target))]
    for line in (source, target):
        for first, header, _ in inside:
            if first <= line <= header:
                return first
    return inside[-1][0] if inside else min(source, target)


def is_within(frame, code, outer):
    """True if a frame of `code` with the identity `outer` waits for `frame`."""
    frame = frame.f_back
    while frame is not None:
        if id(frame) == outer and frame.f_code is code:
            return True
        frame = frame.f_back
    return False


def uses_cuda():
    with contextlib.suppress(OSError):
        with open("/proc/self/maps", "rb") as maps:
            return b"/libcuda.so" in maps.read()
    return False
