"""Part of benches/scrape.sh: prints a table of the cost of a scrape."""

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path


def ask(path):
    """Response of a process to `metrics`, and its length."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(path))
        stream.sendall(b"metrics\n")
        line = stream.makefile("rb").readline()
    return json.loads(line), len(line)


def processor_time(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(built, folder, fixture, rank):
    def file(name):
        return str(next(place for place in (built / "deps" / name, built / name) if place.is_file()))

    variables = {
        "CUDA_INJECTION64_PATH": file("libprof.so"),
        "GPUWHY_CUPTI_PATH": file("libcupti_replay.so"),
        "GPUWHY_REPLAY": str(Path(f"testing/fixtures/{fixture}.cupti.zst").resolve()),
        "GPUWHY_REPLAY_SPEED": os.environ.get("SPEED", "0.05"),
        "GPUWHY_OUTPUT": "off",
        "GPUWHY_REPORT": "off",
        "GPUWHY_RUN": "bench",
        "RANK": str(rank),
        "XDG_RUNTIME_DIR": folder,
    }
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([file("gpuwhy-replay-host")], cwd=folder, env=os.environ | variables, **quiet)


def main():
    built, processes, fixture, scrapes = Path(sys.argv[1]), 8, "mlp", 20
    processes = int(sys.argv[2]) if len(sys.argv) > 2 else processes
    fixture = sys.argv[3] if len(sys.argv) > 3 else fixture
    scrapes = int(sys.argv[4]) if len(sys.argv) > 4 else scrapes
    with tempfile.TemporaryDirectory() as folder:
        running = [start(built, folder, fixture, rank) for rank in range(processes)]
        command = [str(built / "gpuwhy"), "exporter", "--listen", "127.0.0.1:0"]
        exporter = subprocess.Popen(command, env=os.environ | {"XDG_RUNTIME_DIR": folder}, stderr=subprocess.PIPE, text=True)
        try:
            url = re.search(r"http://\S+", exporter.stderr.readline()).group()
            measure(running, exporter, url, Path(folder), scrapes)
        finally:
            for process in [*running, exporter]:
                process.kill()
                process.wait()


def measure(running, exporter, url, folder, scrapes):
    while len(list(folder.glob("gpuwhy/*.sock"))) < len(running):
        time.sleep(0.1)
    time.sleep(3)
    times, costs, pages = [], [], []
    before = processor_time(exporter.pid)
    for _ in range(scrapes):
        begin = time.monotonic()
        pages.append(urllib.request.urlopen(url, timeout=10).read().decode())
        times.append(time.monotonic() - begin)
        # The state made for the scrape, or the next one.
        answers = [ask(path) for path in folder.glob("gpuwhy/*.sock")]
        costs += [answer["cost_ns"] for answer, _ in answers]
        time.sleep(max(0.0, 1.05 - (time.monotonic() - begin)))
    used = processor_time(exporter.pid) - before
    series = sum(not line.startswith("#") for line in pages[-1].splitlines())
    answered = float(re.search(r"^gpuwhy_exporter_answer_seconds (\S+)", pages[-1], re.M).group(1))
    kernels = sum(int(float(line.split()[-1])) for line in pages[-1].splitlines() if line.startswith("gpuwhy_kernels_total"))
    rows = [
        ("processes; kernels recorded in all of them", f"{len(running)}; {kernels:,}"),
        ("processor time of a process for an answer, median and most", f"{statistics.median(costs) / 1e3:.0f} us; {max(costs) / 1e3:.0f} us"),
        ("bytes of an answer", f"{answers[0][1]:,}"),
        ("series; bytes of a page", f"{series:,}; {len(pages[-1]):,}"),
        ("a scrape, median and most", f"{statistics.median(times) * 1e3:.1f} ms; {max(times) * 1e3:.1f} ms"),
        ("of that, waiting for the processes (last scrape)", f"{answered * 1e3:.1f} ms"),
        ("processor time of the exporter for a scrape", f"{used / scrapes * 1e3:.1f} ms"),
        ("memory of the exporter", Path(f"/proc/{exporter.pid}/status").read_text().split("VmHWM:")[1].splitlines()[0].strip()),
    ]
    print(f"| what | {Path(sys.argv[1]).name} |\n|---|---|")
    for row in rows:
        print("| {} | {} |".format(*row))


if __name__ == "__main__":
    main()
