"""Small programs of PyTorch's guides, for the table of operators: ResNet-18 in training and inference, a TransformerEncoder.

    operators.py profiled PROGRAM FOLDER    a trace of torch.profiler and its key_averages()
    gpuwhy run -c cudaProfilerApi --pytorch autograd-shapes-nvtx -- operators.py captured PROGRAM
    gpuwhy run -- operators.py nvtx_cost PROGRAM    median steps with and without ranges, in turns
    operators.py profiler_cost PROGRAM    the same for torch.profiler

PROGRAM is resnet_training, resnet_inference or transformer. testing/fixtures/operators has the files of the first two.
"""

import contextlib
import json
import statistics
import sys
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.down = None
        if stride != 1 or inside != outside:
            self.down = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        kept = x if self.down is None else self.down(x)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)) + kept)


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        inside = 64
        for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [Block(inside, outside, stride), Block(outside, outside, 1)]
            inside = outside
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(512, 1000)

    def forward(self, x):
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(self.layers(x), 1), 1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


def program(name):
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    if name == "transformer":
        model, batch, classes = Encoder().cuda(), torch.randn(16, 64, 256), 10
    else:
        model, batch, classes = ResNet18().cuda(), torch.randn(16, 3, 224, 224), 1000
    batch, labels = batch.pin_memory(), torch.randint(classes, (16,))
    if name == "resnet_inference":
        model.eval()

        def step():
            with torch.no_grad():
                model(batch.cuda(non_blocking=True)).argmax(1).cpu()

        return step
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss = criterion(model(batch.cuda(non_blocking=True)), labels.cuda())
        loss.backward()
        optimizer.step()

    return step


def averages(profiler, by_shape):
    fields = ("count", "cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total")
    fields += ("device_memory_usage", "self_device_memory_usage", "flops")
    rows = []
    for row in profiler.key_averages(group_by_input_shape=by_shape):
        if str(row.device_type).endswith("CPU"):
            rows.append({"key": row.key, **{field: getattr(row, field) for field in fields}})
            if by_shape:
                rows[-1]["shapes"] = row.input_shapes
    return rows


def profiled(name, folder, stacks):
    step = program(name)
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    # The first session of a process initializes CUPTI, and loses records of its first milliseconds.
    with torch.profiler.profile(activities=activities):
        step()
        torch.cuda.synchronize()
    options = dict(record_shapes=True, profile_memory=True, with_flops=True, with_stack=stacks, with_modules=stacks)
    with torch.profiler.profile(activities=activities, **options) as profiler:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(f"{folder}/{name}.kineto.json")
    with open(f"{folder}/{name}.averages.json", "w") as out:
        json.dump({"operators": averages(profiler, False), "shapes": averages(profiler, True)}, out)


def captured(name):
    step = program(name)
    for _ in range(6):
        step()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def timed(step, count=20):
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


class Nvtx:
    """As cli/run/sitecustomize.py does it."""

    def __init__(self, shapes):
        self.shapes = shapes

    def __enter__(self):
        from torch.autograd import profiler

        config = profiler.ProfilerConfig(
            profiler.ProfilerState.NVTX, self.shapes, False, False, False, False, profiler._ExperimentalConfig()
        )
        profiler._enable_profiler(config, set())

    def __exit__(self, *_):
        torch.autograd.profiler._disable_profiler()


def cost(name, with_nvtx):
    """Median step in five rounds, in turns in one process."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    if with_nvtx:
        modes = {"off": contextlib.nullcontext, "nvtx": lambda: Nvtx(False), "shapes": lambda: Nvtx(True)}
    else:
        modes = {
            "off": contextlib.nullcontext,
            "torch.profiler": lambda: torch.profiler.profile(activities=activities, record_shapes=True),
        }
    step = program(name)
    timed(step)
    rows = []
    for _ in range(5):
        row = {}
        for mode, enter in modes.items():
            with enter():
                step()
                row[mode] = timed(step)
        rows.append(row)
        print("COST", name, {mode: round(of) for mode, of in row.items()}, flush=True)
    for mode in list(modes)[1:]:
        ratios = [row[mode] / row["off"] for row in rows]
        print(f"COST {name} {mode}: median ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    what, name = sys.argv[1:3]
    if what == "profiled":
        profiled(name, sys.argv[3], name == "transformer")
    elif what == "captured":
        captured(name)
    else:
        cost(name, what == "nvtx_cost")
