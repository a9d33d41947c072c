"""Part of tests/prometheus.sh: a Prometheus with an exporter over recorded programs."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

RANKS = 4


def wait_for(what, done, seconds=90):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            found = done()
        except OSError:
            found = None
        if found:
            return found
        time.sleep(0.2)
    sys.exit(f"FAILED: waited for {what} in vain")


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Stage:
    """A folder with sockets and traces, and the processes that use it."""

    def __init__(self, built, folder):
        self.built, self.folder, self.running = built, folder, []

    def start(self, command, **variables):
        log = open(self.folder / f"{Path(command[0]).name}-{len(self.running)}.log", "w")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("GPUWHY_", "SLURM_", "RANK"))}
        environment = clean | {"GPUWHY_CONTROL": str(self.folder / "gpuwhy")} | variables
        process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def rank(self, rank, speed):
        def file(name):
            places = [self.built / "deps" / name, self.built / name]
            return str(next(place for place in places if place.is_file()))

        library = file("libprof.so")
        return self.start(
            [file("gpuwhy-replay-host")],
            CUDA_INJECTION64_PATH=library,
            NVTX_INJECTION64_PATH=library,
            GPUWHY_CUPTI_PATH=file("libcupti_replay.so"),
            GPUWHY_REPLAY=str(Path("testing/fixtures/multi_stream.cupti.zst").resolve()),
            GPUWHY_REPLAY_SPEED=str(speed),
            GPUWHY_OUTPUT=f"rank{rank}.gpuwhy",
            GPUWHY_RUN="scraped",
            GPUWHY_EXIT_TIMEOUT="60s",
            RANK=str(rank),
            WORLD_SIZE=str(RANKS),
        )

    def end(self):
        for process in self.running:
            process.terminate()
            process.wait()


def query(port, expression):
    """Values by rank."""
    url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(expression)}"
    rows = json.loads(get(url))["data"]["result"]
    return {row["metric"].get("rank"): float(row["value"][1]) for row in rows}


def scrape(stage):
    port, scraped = free_port(), free_port()
    gpuwhy = str(stage.built / "gpuwhy")
    stage.start([gpuwhy, "exporter", "--listen", f"127.0.0.1:{scraped}"])
    page = f"http://127.0.0.1:{scraped}/metrics"
    wait_for("the exporter", lambda: get(page))
    ranks = [stage.rank(rank, 0.5) for rank in range(RANKS)]
    wait_for("all ranks", lambda: get(page).count('gpuwhy_process_info{run="scraped"') == RANKS)
    checked = subprocess.run(["promtool", "check", "metrics"], input=get(page), text=True, capture_output=True)
    complaints = [line for line in (checked.stdout + checked.stderr).splitlines() if line]
    if checked.returncode not in (0, 3) or [line for line in complaints if "non-counter" not in line]:
        sys.exit("FAILED: promtool check metrics: " + "\n".join(complaints))
    config = stage.folder / "prometheus.yml"
    text = Path("docs/monitoring/prometheus.yml").read_text()
    text = text.replace("15s", "1s").replace("rules.yml", str(Path("docs/monitoring/rules.yml").resolve()))
    config.write_text(text.replace("127.0.0.1:9477", f"127.0.0.1:{scraped}"))
    stage.start([
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={stage.folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ])
    up = wait_for("Prometheus", lambda: query(port, "up{job='gpuwhy'} == 1"))
    assert up, up
    for rank in ranks:
        if rank.wait() != 0:
            sys.exit("FAILED: a recorded program has failed")
    ended = "sum by (rank) (gpuwhy_process_state{run='scraped',state='ended'})"
    wait_for("the ends", lambda: sum(query(port, ended).values()) == RANKS)
    compare(stage, port, gpuwhy)


def compare(stage, port, gpuwhy):
    kernels = query(port, "sum by (rank) (gpuwhy_kernels_total{run='scraped'})")
    seconds = query(port, "sum by (rank) (gpuwhy_device_seconds_total{run='scraped'})")
    for rank in range(RANKS):
        command = [gpuwhy, "report", "--json", str(stage.folder / f"rank{rank}.gpuwhy")]
        report = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
        wanted = sum(sum(device["leaves"].values()) for device in report["devices"]) / 1e9
        found = seconds[str(rank)]
        assert kernels[str(rank)] == report["completeness"]["records"]["kernels"] > 0, (rank, kernels)
        assert wanted > 0 and abs(found - wanted) < 1e-6, (rank, found, wanted)
    print(f"ok: Prometheus has the kernels and the device time of {RANKS} reports: {seconds}")
    groups = json.loads(get(f"http://127.0.0.1:{port}/api/v1/rules"))["data"]["groups"]
    bad = [rule["name"] for group in groups for rule in group["rules"] if rule["health"] == "err"]
    assert not bad, bad
    print("ok: its rules are evaluated without an error")


def main():
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(sys.argv[1]), Path(folder))
        try:
            scrape(stage)
        finally:
            stage.end()


if __name__ == "__main__":
    main()
