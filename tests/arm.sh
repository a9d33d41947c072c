#!/usr/bin/env bash
# Builds for Arm (aarch64), plays all recordings under qemu-user, and compares the reports with those of this machine.
# Needs no GPU.
#
#   tests/arm.sh     builds with the profile dev, into target/arm and target/debug
#
# zig comes from PyPI as for the wheel, qemu-user-static and the C library from Debian, into target/arm-tools; Rust's
# standard library for Arm from rustup. Where one cannot be had, the rest is SKIPPED; with GPUWHY_TOOLS=install, as in CI,
# that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_INCREMENTAL=0

skip() {
    echo "SKIPPED: $1"
    [ "${GPUWHY_TOOLS:-}" != install ] || exit 1
    exit 0
}
[ "${GPUWHY_TOOLS:-}" != install ] || rustup target add aarch64-unknown-linux-gnu
[ -d "$(rustc --print target-libdir --target aarch64-unknown-linux-gnu)" ] ||
    skip "Rust has no standard library for Arm here (rustup target add aarch64-unknown-linux-gnu)"
PYTHONPATH=python python3 -c 'import pathlib, sys, wheel; wheel.installed(pathlib.Path("target/wheel-tools"), wheel.BUILD)' ||
    skip "zig cannot be installed from PyPI"

packages=(-p gpuwhy -p gpuwhy-inject -p cupti-replay)
# Without optimization Rust's standard library needs gettid of glibc 2.30; a release build needs only that of the wheel.
PATH=$PWD/target/wheel-tools/bin:$PATH CARGO_TARGET_DIR=$target/arm cargo zigbuild --target aarch64-unknown-linux-gnu.2.31 \
    --locked "${packages[@]}"
cargo build --locked "${packages[@]}"
said=$(python3 tests/arm.py "$target/arm/aarch64-unknown-linux-gnu/debug" "$target/debug")
case $said in SKIPPED:*) skip "${said#SKIPPED: }" ;; *) echo "$said" ;; esac
