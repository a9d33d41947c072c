#!/usr/bin/env python3
"""Writes the software bill of materials of a release: every crate in its files, as CycloneDX 1.5 (JSON).

    python3 python/sbom.py FILE

cargo-cyclonedx writes one for each package; this joins those of the command, libprof.so, the demo and the C interface, and
removes the paths of this machine. The tool is used from the PATH, or built once into target/tools with
GPUWHY_TOOLS=install; else the file is SKIPPED.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL, VERSION = "cargo-cyclonedx", "0.5.9"
# Folders of the packages whose files are released; the first one describes the release.
PACKAGES = (".", "inject", "testing/cupti-replay", "capi")
# Both machines link the same crates.
TARGET = "x86_64-unknown-linux-gnu"


def main() -> int:
    target, = map(pathlib.Path, sys.argv[1:])
    tools = ROOT / "target" / "tools"
    path = f"{tools / 'bin'}:{os.environ['PATH']}"
    if shutil.which(TOOL, path=path) is None:
        if os.environ.get("GPUWHY_TOOLS") != "install":
            print(f"SKIPPED: the SBOM: {TOOL} is not installed (GPUWHY_TOOLS=install builds it)")
            return 0
        subprocess.run(["cargo", "install", TOOL, "--version", VERSION, "--locked", "--root", str(tools), "--quiet"], check=True)
    bill = joined(made(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bill, indent=1) + "\n")
    print(f"{target}: {len(bill['components']) + 1} components")
    return 0


def made(path: str) -> list[dict]:
    """What cargo-cyclonedx writes, into the folder of each package of the workspace."""
    name = "gpuwhy-release-sbom"
    # With a given time it also writes no random serial number.
    commit = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    environment = {**os.environ, "PATH": path, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", commit)}
    try:
        subprocess.run(["cargo", "cyclonedx", "--format", "json", "--spec-version", "1.5", "--target", TARGET, "--quiet",
                        "--override-filename", name], cwd=ROOT, env=environment, check=True)
        return [json.loads((ROOT / folder / f"{name}.json").read_text().replace(f"file://{ROOT}", "file:///gpuwhy"))
                for folder in PACKAGES]
    finally:
        for manifest in (*ROOT.glob("Cargo.toml"), *ROOT.glob("*/Cargo.toml"), *ROOT.glob("testing/*/Cargo.toml")):
            (manifest.parent / f"{name}.json").unlink(missing_ok=True)


def joined(bills: list[dict]) -> dict:
    whole = bills[0]
    known = {whole["metadata"]["component"]["bom-ref"], *(part["bom-ref"] for part in whole["components"])}
    for bill in bills[1:]:
        added = {part["bom-ref"]: part for part in (bill["metadata"]["component"], *bill["components"]) if part["bom-ref"] not in known}
        known |= added.keys()
        whole["components"] += added.values()
        whole["dependencies"] += [row for row in bill["dependencies"] if row["ref"] in added]
    return whole


if __name__ == "__main__":
    sys.exit(main())
