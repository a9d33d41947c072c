"""An LLM server with random weights in one process, to see how the iterations of a server look in a report.

The engine's thread takes requests from a queue, runs an iteration of the model for all of them together and copies one
sampled token of each back. It has a KV cache by pages, prompts in chunks, and CUDA graphs for batches of fixed sizes.

    gpuwhy run -- python server.py --arrival 4          # waits for requests part of the time
    gpuwhy run -- python server.py --slow-scheduler 3   # the GPU waits for the scheduler

`--truth FILE` writes each iteration and each time without requests as a line of JSON, with times of `time.time_ns`.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import itertools
import json
import random
import threading
import time

import torch
from torch import nn

VOCABULARY, HEAD, PAGE, CONTEXT, SEQUENCES = 32000, 64, 16, 512, 64
BUCKETS, PAGES = [1, 2, 4, *range(8, SEQUENCES + 1, 8)], CONTEXT // PAGE


@dataclasses.dataclass(eq=False)
class Request:
    tokens: list[int]  # the prompt, and what was read back
    prompt: int
    goal: int  # tokens with those to generate
    computed: int = 0  # tokens whose keys and values are in the cache
    pages: list[int] = dataclasses.field(default_factory=list)
    row: int = 0  # place of its latest token on the GPU


class Model(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width), nn.RMSNorm(width)
        self.head, self.layers = nn.Linear(width, VOCABULARY), nn.ModuleList(nn.ModuleDict({
            "norm": nn.RMSNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width),
            "norm_up": nn.RMSNorm(width), "up": nn.Linear(width, 6 * width), "down": nn.Linear(3 * width, width)}) for _ in range(layers))
        # Page 0 belongs to no request: padding writes there.
        self.register_buffer("caches", torch.zeros(layers, (SEQUENCES * PAGES + 1) * PAGE, 2, width // HEAD, HEAD))

    def forward(self, inputs: dict[str, torch.Tensor], lengths: list[tuple[int, int]]) -> torch.Tensor:
        """A token for each sequence. `lengths`: sequences and the tokens of each, for neighbors of one length."""
        sequences, tokens, places = sum(n for n, _ in lengths), [n * m for n, m in lengths], inputs["places"]
        ids, positions, slots = (inputs[name][:sum(tokens)] for name in ("ids", "positions", "slots"))
        tables = inputs["tables"][:sequences * PAGES].view(sequences, PAGES, 1)
        cached = (tables * PAGE + places[:PAGE]).flatten(1).split([n for n, _ in lengths])
        masks = [places <= part.view(n, 1, m, 1) for part, (n, m) in zip(positions.split(tokens), lengths)]
        x = self.words(ids) + self.places(positions)
        for layer, cache in zip(self.layers, self.caches):
            qkv, attended = layer["qkv"](layer["norm"](x)).view(len(x), 3, -1, HEAD), []
            cache.index_copy_(0, slots, qkv[:, 1:])
            for query, where, mask in zip(qkv[:, 0].split(tokens), cached, masks):
                parts = [query, *cache.index_select(0, where.flatten()).unbind(1)]
                parts = [part.unflatten(0, (len(where), -1)).transpose(1, 2) for part in parts]
                attended.append(nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask).transpose(1, 2).flatten(0, 1).flatten(1))
            x = x + layer["out"](torch.cat(attended))
            gate, up = layer["up"](layer["norm_up"](x)).chunk(2, -1)
            x = x + layer["down"](nn.functional.silu(gate) * up)
        return self.head(self.norm(x[inputs["last"][:sequences]])).argmax(-1).int()


class Engine:
    @torch.inference_mode()
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.cuda, self.waiting, self.arrived = options, options.device == "cuda", collections.deque(), threading.Event()
        self.running, self.truth, self.pages, self.rows = [], [], list(range(1, SEQUENCES * PAGES + 1)), list(range(SEQUENCES))
        self.graphs, self.turn, self.answered, self.generated, self.keeps_ids = {}, 0, 0, 0, options.overlap or options.ids_on_gpu
        with torch.device(options.device):
            self.model, most = Model(options.width, options.layers).to(torch.bfloat16), SEQUENCES + options.chunk
        sizes = dict(slots=8 * most, rows=8 * SEQUENCES, ids=4 * most, positions=4 * most, last=4 * SEQUENCES, tables=4 * SEQUENCES * PAGES)
        # Inputs are staged twice, in turns: with --overlap the GPU may still read those of the iteration before.
        self.whole = [torch.zeros(sum(sizes.values()), dtype=torch.uint8, pin_memory=self.cuda) for _ in range(2)]
        self.whole.append(self.whole[0].to(options.device))
        *self.staged, self.inputs = ({"places": torch.arange(CONTEXT, device=options.device)} | {
            name: part.view(torch.int64 if name in ("slots", "rows") else torch.int32)
            for name, part in zip(sizes, whole.split(list(sizes.values())))} for whole in self.whole)
        self.read_back = [torch.zeros(SEQUENCES, dtype=torch.int32, pin_memory=self.cuda) for _ in range(2)]
        self.latest = torch.zeros(SEQUENCES + 1, dtype=torch.int32, device=options.device)
        self.copies = torch.cuda.Stream() if self.cuda else None
        torch.backends.cuda.enable_cudnn_sdp(False)  # it builds a kernel for each new length of a prompt
        for tokens in (1, options.chunk // 2, options.chunk):
            self.model(self.inputs, [(1, tokens)])
        for size in BUCKETS if self.cuda and not options.no_graphs else []:
            self.model(self.inputs, [(size, 1)])
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                sampled = self.model(self.inputs, [(size, 1)])
            self.graphs[size] = graph, sampled

    def schedule(self) -> tuple[list[tuple], list[tuple]]:
        """The next token of each sequence that decodes, and --chunk tokens of prompts."""
        budget, decoding, prompts, deadline = self.options.chunk, [], [], time.perf_counter() + self.options.slow_scheduler / 1e3
        while time.perf_counter() < deadline:
            pass
        while len(self.running) < SEQUENCES and self.waiting:
            request = self.waiting.popleft()
            request.row, request.pages = self.rows.pop(), [self.pages.pop() for _ in range(-(-request.goal // PAGE))]
            self.running.append(request)
        for request in self.running:
            left = request.prompt - request.computed
            if left <= 0 and request.computed < request.goal - 1:
                decoding.append((request, request.computed, 1))
            elif left > 0 and budget > 0:
                prompts.append((request, request.computed, min(left, budget)))
                budget -= prompts[-1][2]
        return decoding, prompts

    def send(self, name: str, numbers: list[int]) -> torch.Tensor:
        staged = self.staged[self.turn][name][:len(numbers)].copy_(torch.tensor(numbers))
        target = self.inputs[name][:len(numbers)]
        return target if self.options.ids_on_gpu else target.copy_(staged, non_blocking=True)

    def prepare_inputs(self, parts: list[tuple]) -> None:
        each = [(request, position) for request, first, count in parts for position in range(first, first + count)]
        ids = self.send("ids", [-1 - request.row if self.keeps_ids and at >= request.prompt else request.tokens[at] for request, at in each])
        self.send("positions", [position for _, position in each])
        self.send("slots", [request.pages[position // PAGE] * PAGE + position % PAGE for request, position in each])
        self.send("tables", [page for request, *_ in parts for page in request.pages + [0] * (PAGES - len(request.pages))])
        self.send("last", [end - 1 for end in itertools.accumulate(count for *_, count in parts)])
        if self.keeps_ids:  # what follows a part of a prompt is not used: it goes to the last row
            self.send("rows", [request.row if first + count >= request.prompt else SEQUENCES for request, first, count in parts])
            if self.options.ids_on_gpu:  # one copy, whose size does not depend on the batch
                self.whole[2].copy_(self.whole[self.turn], non_blocking=True)
            ids.copy_(torch.where(ids < 0, self.latest[(-1 - ids).clamp(min=0)], ids))

    def launch(self, decoding: list[tuple], prompts: list[tuple], start_ns: int) -> tuple:
        parts, self.turn, copied = decoding + prompts, 1 - self.turn, None
        self.prepare_inputs(parts)
        size = next(size for size in BUCKETS if size >= len(parts))
        if not prompts and size in self.graphs:
            for name in ("ids", "slots", "last"):  # of the padding
                self.inputs[name][len(parts):size].zero_()
            graph, sampled = self.graphs[size]
            graph.replay()
        else:
            lengths = [(len(decoding), 1)][:len(decoding)] + [(1, count) for *_, count in prompts]
            sampled = self.model(self.inputs, lengths)
        sampled = sampled[:len(parts)]
        if self.keeps_ids:
            self.latest.index_copy_(0, self.inputs["rows"][:len(parts)], sampled)
        if self.cuda and (self.options.overlap or not self.options.sync):
            self.copies.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.copies):
                sampled = self.read_back[self.turn][:len(parts)].copy_(sampled, non_blocking=True)
                copied = self.copies.record_event()
            torch.cuda.current_stream().wait_event(copied)  # then the next iteration may write the tensor
        for request, _, count in parts:
            request.computed += count
        return parts, "decode" if not prompts else "mixed" if decoding else "prefill", sampled, copied, start_ns

    def read(self, parts: list[tuple], kind: str, sampled: torch.Tensor, copied: torch.cuda.Event | None, start_ns: int) -> None:
        """Waits for the sampled tokens, and ends the sequences that have all of theirs."""
        if copied:
            copied.synchronize()
        sampled, times = sampled.tolist(), {"start_ns": start_ns, "end_ns": time.time_ns()}
        self.truth.append({"kind": kind, "sequences": len(parts), "tokens": sum(count for *_, count in parts), **times})
        for (request, first, count), token in zip(parts, sampled):
            if first + count >= request.prompt:
                request.tokens.append(token)
                self.generated += 1
            if len(request.tokens) == request.goal:
                self.running.remove(request)
                self.pages += request.pages
                self.rows.append(request.row)
                self.answered += 1

    def wait_for_requests(self, stop: float) -> None:
        while not self.waiting and time.monotonic() < stop:
            if not self.options.spin:
                self.arrived.wait(stop - time.monotonic())
                self.arrived.clear()

    @torch.inference_mode()
    def run(self) -> None:
        before, end, stop = None, time.time_ns(), time.monotonic() + (self.options.seconds or 86400)
        while time.monotonic() < stop and (self.options.seconds or self.answered < self.options.requests):
            if not self.running and not self.waiting:
                self.wait_for_requests(stop)
                self.truth.append({"kind": "no requests", "start_ns": end, "end_ns": (end := time.time_ns())})
                continue
            parts = self.schedule()
            batch = self.launch(*parts, end) if any(parts) else None
            ready, before = (before, batch) if self.options.overlap else (batch, None)
            if ready:
                self.read(*ready)
            end = time.time_ns()


def ask(engine: Engine, serving: concurrent.futures.Future, options: argparse.Namespace) -> None:
    """Requests at random times with a mean rate; with rate 0 all at once, and with --seconds one more for each answer."""
    choose, due = random.Random(1), time.monotonic()
    for asked in itertools.takewhile(lambda _: not serving.done(), itertools.count() if options.seconds else range(options.requests)):
        due += choose.expovariate(options.arrival) if options.arrival else 0.0
        time.sleep(max(0.0, due - time.monotonic()))
        while not options.arrival and asked >= engine.answered + options.requests and not serving.done():
            time.sleep(0.001)
        prompt = [choose.randrange(VOCABULARY) for _ in range(choose.randrange(16, CONTEXT // 2))]
        engine.waiting.append(Request(prompt, len(prompt), len(prompt) + choose.randrange(64, CONTEXT // 2)))
        engine.arrived.set()


def hold_gil(serving: concurrent.futures.Future) -> None:
    """Works in Python half of the time, as a thread does that turns tokens into text."""
    while not serving.done():
        time.sleep(0.005)
        deadline = time.perf_counter() + 0.005
        while time.perf_counter() < deadline:
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, text in (
            ("arrival", 0.0, "requests a second; 0: all at once"), ("requests", 256, "in all; with --seconds and rate 0: at a time"),
            ("seconds", 0.0, "when to stop instead"), ("chunk", 512, "most tokens of prompts in an iteration"),
            ("slow-scheduler", 0.0, "CPU time of the scheduler in each iteration, ms"), ("truth", "", "file for the iterations"),
            ("gil", False, "another thread works in Python"), ("no-graphs", False, "launch kernel by kernel"),
            ("sync", False, "read tokens with .tolist()"), ("spin", False, "look for requests all the time instead of sleeping"),
            ("overlap", False, "read tokens after the next launch"), ("ids-on-gpu", False, "send no tokens; one copy of one size"),
            ("width", 1024, "of the model"), ("layers", 8, "of the model"), ("device", "cuda", "cpu: to try it without a GPU")):
        parser.add_argument(f"--{name}", help=text, default=default, **({"action": "store_true"} if default is False else {"type": type(default)}))
    options = parser.parse_args()
    engine = Engine(options)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        serving = pool.submit(engine.run)
        if options.gil:
            pool.submit(hold_gil, serving)
        ask(engine, serving, options)
    serving.result()
    kinds, seconds = collections.defaultdict(list), (engine.truth[-1]["end_ns"] - engine.truth[0]["start_ns"]) / 1e9
    for row in engine.truth:
        kinds[row["kind"]].append((row["end_ns"] - row["start_ns"]) / 1e6)
    idle, decode = sum(kinds.pop("no requests", [])) / 1e3 / seconds, sorted(kinds["decode"]) or [0.0]
    counts = ", ".join(f"{len(times)} {kind}" for kind, times in kinds.items()) + f"; {idle:.1%} of the time without requests"
    print(f"{engine.generated / seconds:.1f} tokens/s in {seconds:.2f} s; decode p50 {decode[len(decode) // 2]:.3f} ms, "
          f"p99 {decode[len(decode) * 99 // 100]:.3f} ms; {counts}")
    with open(options.truth or "/dev/null", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in engine.truth)


if __name__ == "__main__":
    main()
