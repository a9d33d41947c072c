#!/usr/bin/env bash
# Looks for the functions of profiler-core/src/attribution/servers.rs in the wheels of the versions named there, and
# with --newest in the newest ones. Wheels come from PyPI (0.7 GB, kept nowhere) and are not installed; without PyPI:
# SKIPPED. TensorRT-LLM and TGI have none with these files.
#
#   tests/server_names.sh [--newest]
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in '' | --newest) ;; *) sed -n '2,6s/^# \?//p' "$0"; exit 2 ;; esac
exec python3 - "${1:-}" <<'PYTHON'
import re, subprocess, sys, tempfile, zipfile
from pathlib import Path

source = Path("profiler-core/src/attribution/servers.rs").read_text()
PACKAGES = {"VLLM": "vllm", "SGLANG": "sglang", "TRANSFORMERS": "transformers"}
versions = dict(re.findall(r'const (\w+): &str = "[^"]*"; // (.*)', source))
rows = re.findall(r'\(\s*(\w+),\s*"([^"]+)",\s*&\[([^\]]+)\]', source)
missing = looked = 0
for server, package in PACKAGES.items():
    of_server = [(file, re.findall(r'"(\w+)"', names)) for name, file, names in rows if name == server]
    assert of_server, f"no rows of {server}"
    for version in [""] if sys.argv[1] else versions[server].split(", "):
        wanted = package + (f"=={version}" if version else "")
        with tempfile.TemporaryDirectory() as folder:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            got = subprocess.run([*pip, "--dest", folder, wanted], capture_output=True, text=True)
            if got.returncode:
                print(f"SKIPPED: {wanted}: {got.stderr.strip().splitlines()[-1:]}")
                continue
            wheel = zipfile.ZipFile(next(Path(folder).glob("*.whl")))
            for end, names in of_server:
                files = [name for name in wheel.namelist() if f"/{name}".endswith(end)]
                text = "".join(wheel.read(name).decode() for name in files)
                for name in names:
                    looked += 1
                    if not re.search(rf"^\s*(async )?def {name}\(", text, re.M):
                        missing += 1
                        print(f"{wheel.filename}: {end}: no function {name}")
print(f"{looked} functions looked for, {missing} missing")
sys.exit(missing > 0)
PYTHON
